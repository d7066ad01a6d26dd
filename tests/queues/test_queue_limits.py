"""Limits of a queue's claims: how many at a time, and in a time, by all together."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial

import pytest
from django.db.models import F
from django.db.models.functions import Now

from django_pgqueue.models import Job, Permit, Queue
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.lease import release, renew, rescue
from django_pgqueue.queues.queue_limits import (
    claim_limited,
    set_concurrency,
)
from django_pgqueue.queues.settle import Ended, ack
from django_pgqueue.queues.suspects import claim_suspects
from tests.harness.factories import LEASE, make_jobs

SECOND = timedelta(seconds=1)


def limited(cursor, limit=100, *, queue="mail", worker="w", barred=(), **said):
    """Claim from a queue with a limit, in a transaction of its own."""
    terms = {"concurrency": None, "spacing": None, "burst": 1, **said}
    with cursor.connection.transaction():
        return claim_limited(
            cursor,
            partial(claim, queues=[queue], barred=barred),
            queue=queue,
            worker=worker,
            limit=limit,
            lease=LEASE,
            barred=barred,
            **terms,
        )


def ended(jobs):
    return [Ended(job.id, job.delivery) for job in jobs]


def hand_back(cursor, job):
    release(cursor, worker="w", leases=[(job.id, job.delivery, job.due_at)])


def lapse(ids):
    """Let leases run out."""
    Job.objects.filter(pk__in=ids).update(visible_at=Now() - SECOND)


# How many at a time -------------------------------------------------------------------


def test_no_more_are_claimed_than_may_be_at_a_time(cursor):
    """The claim says that it was the limit, and not the queue, that had no more."""
    first, second, third = make_jobs(3, queue="mail")

    answer = limited(cursor, concurrency=2)

    assert [first, second] == [job.id for job in answer.jobs]
    assert (True, True) == (answer.is_short, answer.is_full)
    again = limited(cursor, concurrency=2)
    assert ([], True, True) == (again.jobs, again.is_short, again.is_full)
    assert third == Job.objects.get(leased_by=None).pk


@pytest.mark.parametrize("exit_", ["settled", "handed back", "rescued"])
def test_a_place_is_free_when_its_job_is_not_leased_any_more(cursor, exit_):
    """Whatever took the lease away: nobody gives places back, they are counted."""
    make_jobs(4, queue="mail")
    (one, other) = limited(cursor, concurrency=2).jobs
    if exit_ == "settled":
        ack(cursor, worker="w", ended=ended([one]))
    elif exit_ == "handed back":
        hand_back(cursor, one)
    else:
        rescue(
            cursor,
            worker="w",
            running=[],
            kept=[(other.id, other.delivery)],
            lease=LEASE,
            message="",
        )

    answer = limited(cursor, concurrency=2)

    assert (1, True) == (len(answer.jobs), answer.is_full)
    held = {other.id, *(job.id for job in answer.jobs)}
    assert held == set(Permit.objects.values_list("job_id", flat=True))


def test_a_crashed_claimers_places_come_back_with_its_leases(cursor):
    """Each is taken over into its own place, before any other job."""
    make_jobs(5, queue="mail")
    lost = limited(cursor, 2, concurrency=2, worker="dead").jobs
    make_jobs(1, queue="mail", priority=9)
    assert [] == limited(cursor, concurrency=2).jobs
    lapse(job.id for job in lost)

    answer = limited(cursor, concurrency=2)

    assert {job.id for job in lost} == {job.id for job in answer.jobs}
    assert {(2, 1)} == {(job.delivery, job.crashes) for job in answer.jobs}
    assert (True, True) == (answer.is_short, answer.is_full)
    assert [] == limited(cursor, concurrency=2).jobs


def test_a_lease_that_is_renewed_late_never_makes_one_too_many(cursor):
    """Its place was kept: what had lapsed could be taken over, and no other job."""
    make_jobs(3, queue="mail")
    (late,) = limited(cursor, 1, concurrency=1).jobs
    lapse([late.id])
    barred = limited(cursor, concurrency=1, barred=[late.id])
    assert ([], True) == (barred.jobs, barred.is_full)

    renewed = renew(cursor, worker="w", leases=[(late.id, late.delivery)], lease=LEASE)

    assert [late.id] == list(renewed)
    assert [] == limited(cursor, concurrency=1, worker="other").jobs
    assert 1 == Job.objects.exclude(leased_by=None).count()


def test_suspects_have_places_like_all_others(cursor):
    """Those of the quarantine count, and those of a quarantine that died are kept."""
    make_jobs(2, queue="mail", runs_alone=True)
    make_jobs(2, queue="mail")

    def alone():
        with cursor.connection.transaction():
            return claim_limited(
                cursor,
                partial(claim_suspects, queues=["mail"]),
                queue="mail",
                concurrency=2,
                spacing=None,
                burst=1,
                worker="q",
                limit=1,
                lease=LEASE,
                alone=True,
            )

    (suspect,) = alone().jobs
    assert 1 == len(limited(cursor, concurrency=2).jobs)
    assert alone().is_full
    lapse([suspect.id])
    # Not by a process that runs others beside it.
    assert [] == limited(cursor, concurrency=2).jobs
    assert [suspect.id] == [job.id for job in alone().jobs]


def test_threads_that_claim_at_once_never_exceed_the_limit(cursor, new_cursor):
    """Whoever looks right after a claim of any of them: three are leased at most."""
    most = 3
    make_jobs(400, queue="mail")
    counts: Counter[int] = Counter()

    def work(number):
        worker, other = f"w{number}", new_cursor()
        while True:
            jobs = limited(other, 2, concurrency=most, worker=worker).jobs
            other.execute("SELECT count(leased_by), count(*) FROM pgqueue_job")
            held, left = other.fetchone()
            if not left:
                return
            counts[held] += 1
            ack(other, worker=worker, ended=ended(jobs))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))

    assert 0 == Job.objects.count()
    assert max(counts) <= most


# How many in a time -------------------------------------------------------------------


@pytest.mark.parametrize("burst", [1, 4])
def test_claims_keep_to_rate_and_burst_in_every_window(cursor, new_cursor, burst):
    """From any claim to any other, by leased_at, whoever claims."""
    rate, total = 200.0, 60
    make_jobs(total, queue="mail")
    times: list[datetime] = []

    def work(number):
        other, said = new_cursor(), {"spacing": 1 / rate, "burst": burst}
        while len(times) < total:
            answer = limited(other, 10, worker=f"w{number}", **said)
            times.extend(job.claimed_at for job in answer.jobs)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))

    times.sort()
    assert total == len(times)
    most_too_many = max(
        last - first + 1 - burst - (times[last] - times[first]).total_seconds() * rate
        for first in range(total)
        for last in range(first, total)
    )
    # A microsecond is what the clock tells.
    assert most_too_many <= rate * 0.000_001 * total


def test_a_new_rate_counts_from_now(cursor):
    """Also after a slower one, or a clock that was put back."""
    make_jobs(2, queue="mail")
    assert 1 == len(limited(cursor, spacing=600.0).jobs)

    waits = limited(cursor, spacing=1.0)
    Queue.objects.update(full_at=F("full_at") - timedelta(seconds=1.1))

    assert ([], True) == (waits.jobs, waits.next_seconds <= 1)
    assert 1 == len(limited(cursor, spacing=1.0).jobs)


# What an operator says ----------------------------------------------------------------


def test_what_an_operator_says_holds_at_once(cursor):
    """In place of the settings of whoever claims; and then those again."""
    make_jobs(20, queue="mail")
    assert set_concurrency(cursor, "mail", 3)
    assert not set_concurrency(cursor, "mail", 3)
    assert 3 == len(limited(cursor, concurrency=10).jobs)
    assert set_concurrency(cursor, "mail", 1)
    assert limited(cursor, concurrency=10).is_full
    assert set_concurrency(cursor, "mail", None)
    assert 7 == len(limited(cursor, concurrency=10).jobs)
