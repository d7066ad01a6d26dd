"""Claim: due jobs are leased to one worker, in order, and never waited for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue.models import Job
from django_pgqueue.queues.claim import (
    Band,
    claim,
    claim_from_floors,
)
from tests.harness.factories import LEASE, make_job, make_jobs, make_leased_job

HOUR = timedelta(hours=1)


SECOND = timedelta(seconds=1)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def claim_default(cursor, limit=10, *, queues=("default",), worker="a", lease=LEASE):
    return claim(cursor, queues=queues, worker=worker, limit=limit, lease=lease)


def claim_band(cursor, limit=10, *, floor=LONG_AGO, priority=0, worker="a"):
    return claim_from_floors(
        cursor,
        bands=[Band("default", priority, floor)],
        worker=worker,
        limit=limit,
        lease=LEASE,
    )


def ids(claimed):
    return [job.id for job in claimed]


# A fact that holds for both statements is tested on both.
either_claim = pytest.mark.parametrize(
    "claim_jobs", [claim_default, claim_band], ids=["claim", "claim_from_floors"]
)


# What a claim does -------------------------------------------------------------------


@either_claim
def test_a_claimed_job_is_leased_by_the_clock_of_the_database(cursor, claim_jobs):
    """Attempt and delivery go up by one; the lease ends one lease from now."""
    job = make_job(visible_at=-SECOND)

    (claimed,) = claim_jobs(cursor)

    row = Job.objects.get(pk=job.pk)
    assert (1, 1, "a") == (row.attempt, row.deliveries, row.leased_by)
    assert (claimed.claimed_at, claimed.claimed_at + LEASE) == (
        row.leased_at,
        row.visible_at,
    )
    assert (job.pk, 1, 1) == (claimed.id, claimed.delivery, claimed.attempt)
    assert job.visible_at == claimed.due_at


@either_claim
def test_a_claim_returns_what_the_worker_needs(cursor, claim_jobs):
    """Payload as text, to be decoded inside the job's own try."""
    job = make_job(
        task="shop.send",
        args=[1],
        kwargs={"a": 2},
        headers={"trace": "t"},
        max_attempts=3,
        expires_at=HOUR,
    )

    (claimed,) = claim_jobs(cursor)

    assert ("shop.send", "[1]", '{"a": 2}', '{"trace": "t"}') == (
        claimed.task,
        claimed.args,
        claimed.kwargs,
        claimed.headers,
    )
    assert ("default", 0, 3, 0, False) == (
        claimed.queue,
        claimed.priority,
        claimed.max_attempts,
        claimed.crashes,
        claimed.runs_alone,
    )
    assert (job.enqueued_at, False) == (claimed.enqueued_at, claimed.expired)


@pytest.mark.parametrize(
    "expires_at,expired", [(None, None), (HOUR, False), (-SECOND, True)]
)
def test_a_claim_says_whether_the_job_has_expired(cursor, expires_at, expired):
    """It is claimed all the same: somebody must move it to the archive."""
    make_job(expires_at=expires_at)

    (claimed,) = claim_default(cursor)

    assert expired is claimed.expired


@either_claim
@pytest.mark.parametrize("payload", ["[1e5000]", "[" * 3000 + "]" * 3000])
def test_a_payload_that_python_cannot_read_is_claimed_with_its_neighbours(
    cursor, claim_jobs, payload
):
    """It fails in its own job later; the claim returns it as text."""
    before = make_job()
    cursor.execute(
        "INSERT INTO pgqueue_job (task, args) VALUES ('x', %s) RETURNING id", [payload]
    )
    (unreadable,) = cursor.fetchone()
    after = make_job()

    assert [before.pk, unreadable, after.pk] == ids(claim_jobs(cursor))


# Order and limit ---------------------------------------------------------------------


def test_priority_goes_over_queues_then_the_longest_due_is_first(cursor):
    """The order is one order over all queues that are asked for."""
    for queue in ("a", "b"):
        for priority in (-5, 0, 9):
            for seconds in (3, 2, 1):
                make_job(queue=queue, priority=priority, visible_at=-seconds * SECOND)

    claimed = claim_default(cursor, 100, queues=["a", "b"])

    assert sorted(claimed, key=lambda job: (-job.priority, job.due_at)) == claimed
    assert 18 == len(claimed)
    assert [9] * 6 + [0] * 6 + [-5] * 6 == [job.priority for job in claimed]


def test_queues_of_equal_priority_are_served_in_the_order_they_are_named(cursor):
    """So a caller that rotates the names lets none starve, however long the others."""
    jobs = {
        name: make_jobs(6, queue=name, visible_at=-seconds * SECOND)
        for name, seconds in (("a", 1), ("b", 3), ("c", 2))
    }

    taken = [
        ids(claim_default(cursor, 2, queues=names))
        for names in (["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"])
    ]

    assert [jobs["a"][:2], jobs["b"][:2], jobs["c"][:2]] == taken


@either_claim
@pytest.mark.parametrize("limit", [1, 7, 100])
def test_the_limit_is_never_exceeded(cursor, claim_jobs, limit):
    """What is left stays untouched, unlocked and due."""
    wanted = make_jobs(20)

    claimed = claim_jobs(cursor, limit)

    assert wanted[:limit] == ids(claimed)
    assert 20 - len(claimed) == Job.objects.filter(deliveries=0).count()


# What is not claimed -----------------------------------------------------------------


@either_claim
def test_what_is_not_due_is_not_claimed(cursor, claim_jobs):
    """Scheduled, in back-off, parked and leased jobs, suspects, other queues: stay."""
    make_job(run_after=HOUR)
    make_job(visible_at=HOUR, attempt=1, deliveries=1)
    make_job(visible_at=None)
    make_job(lane="a")
    make_leased_job("b")
    make_job(runs_alone=True, crashes=1)
    make_job(queue="other")

    assert [] == claim_jobs(cursor)


# Locks -------------------------------------------------------------------------------


@either_claim
def test_a_job_whose_claim_rolled_back_is_found_by_the_next(
    cursor, other_cursor, claim_jobs
):
    """A worker that dies inside its claim leaves the job as it was."""
    job = make_job()

    with cursor.connection.transaction(force_rollback=True):
        assert [job.pk] == ids(claim_jobs(cursor))
        assert [] == claim_jobs(other_cursor, worker="b")
    (claimed,) = claim_jobs(other_cursor, worker="b")

    assert (job.pk, 1, 1) == (claimed.id, claimed.attempt, claimed.delivery)


@either_claim
def test_claimers_at_once_never_share_a_job(new_cursor, claim_jobs):
    """Six drain 600 jobs: each job is claimed once, no limit is exceeded."""
    wanted = make_jobs(600)
    limits = [1, 7, 40]
    cursors = [new_cursor() for _ in range(6)]

    def drain(number):
        limit, taken = limits[number % len(limits)], []
        while batch := claim_jobs(cursors[number], limit, worker=str(number)):
            assert len(batch) <= limit
            taken += ids(batch)
        return taken

    with ThreadPoolExecutor(len(cursors)) as pool:
        taken = [job_id for batch in pool.map(drain, range(6)) for job_id in batch]

    assert wanted == sorted(taken)
    assert 600 == Job.objects.filter(attempt=1, deliveries=1).count()


# Crashes -----------------------------------------------------------------------------


@either_claim
def test_a_lapsed_lease_is_a_crash_and_burns_no_attempt(cursor, claim_jobs):
    """The next claim counts the crash, keeps the attempt and writes what happened."""
    job = make_leased_job("gone", attempt=2, deliveries=4, visible_at=-SECOND)

    (claimed,) = claim_jobs(cursor)

    assert (job.pk, 5, 2, 1) == (
        claimed.id,
        claimed.delivery,
        claimed.attempt,
        claimed.crashes,
    )
    assert claimed.runs_alone is False
    (error,) = Job.objects.get(pk=job.pk).errors
    assert ("lease_expired", "gone", 2, 4) == (
        error["kind"],
        error["worker"],
        error["attempt"],
        error["delivery"],
    )
    assert claimed.claimed_at == datetime.fromisoformat(error["at"])


@either_claim
def test_after_a_second_crash_a_job_runs_alone(cursor, claim_jobs):
    """It may be what takes its process down, and takes nobody with it again."""
    make_leased_job("gone", crashes=1, visible_at=-SECOND)

    (claimed,) = claim_jobs(cursor)

    assert (2, True) == (claimed.crashes, claimed.runs_alone)
