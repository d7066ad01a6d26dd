"""Fair: claims from lanes that take turns."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from django_pgqueue.models import Job, Lane
from django_pgqueue.queues import fair
from django_pgqueue.queues.settle import Ended, retry
from tests.harness.factories import make_jobs

HOUR = timedelta(hours=1)

NOBODY = fair.Stand()


def wait_in(lane, count=1, **columns):
    """Store jobs of a fair lane; return their ids."""
    return make_jobs(count, lane=lane, lane_policy="fair", **columns)


def claim(cursor, limit, stand=NOBODY, **params):
    """Claim as a worker does, from one queue."""
    own = {"worker": "w", "lease": timedelta(seconds=60), **params}
    return fair.claim_fair(cursor, "default", stand=stand, limit=limit, **own)


def shares(claimed):
    return Counter(job.lane for job in claimed.jobs)


# Turns -------------------------------------------------------------------------------


def test_a_claim_takes_of_each_lane_the_same(cursor):
    """However many jobs another one has."""
    wait_in("a", 100)
    wait_in("b", 3)
    wait_in("c", 100)

    assert {"a": 4, "b": 3, "c": 3} == shares(claim(cursor, 10))


def test_one_job_at_a_time_is_taken_in_turn(cursor):
    """The next claim goes on after the lane that had the last job."""
    for lane in "abc":
        wait_in(lane, 3)
    taken, claimed = [], claim(cursor, 1)
    while claimed.jobs or claimed.has_more:
        taken += [job.lane for job in claimed.jobs]
        claimed = claim(cursor, 1, claimed.stand)

    assert [*"abcabcabc"] == taken


def test_a_lane_has_as_many_jobs_in_a_turn_as_its_weight(cursor):
    """Where all have enough, the shares are as the weights."""
    Lane.objects.create(name="b", weight=3)
    wait_in("a", 100)
    wait_in("b", 100)

    assert {"a": 5, "b": 15} == shares(claim(cursor, 20))
    assert {"a": 1, "b": 3} == shares(claim(cursor, 4))


def test_jobs_of_a_lane_are_taken_by_when_they_became_due(cursor):
    """And leased, with a delivery and an attempt."""
    late, first, second = wait_in("a", 3)
    Job.objects.filter(pk=late).update(
        lane_due_at=Job.objects.get(pk=second).lane_due_at
    )
    Job.objects.filter(pk=first).update(lane_due_at="2001-01-01T00:00:00Z")
    (job,) = claim(cursor, 1).jobs

    assert (first, 1, 1) == (job.id, job.delivery, job.attempt)
    row = Job.objects.get(pk=first)
    assert ("w", None) == (row.leased_by, row.lane_due_at)
    assert job.claimed_at == job.due_at


def test_a_job_with_a_time_waits_and_holds_nobody_up(cursor):
    """It is said when it will be due."""
    wait_in("a", run_after=HOUR)
    due, *_ = wait_in("a")
    wait_in("b", run_after=2 * HOUR)
    claimed = claim(cursor, 10)
    rest = claim(cursor, 10)

    assert [due] == [job.id for job in claimed.jobs]
    # The next of a lane that has something due is found when it has none.
    assert 3600 < claimed.next_seconds <= 7200
    assert 3500 < rest.next_seconds <= 3600
    assert not rest.has_more


# Pauses ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "tests.noop"])
def test_a_paused_lane_has_no_turn(cursor, name):
    """Nor has any of a task that is paused; until it ends."""
    wait_in("a")
    other, *_ = wait_in("b", task="tests.other")
    Lane.objects.create(name=name, paused_at="2001-01-01T00:00:00Z")

    assert [other] == [job.id for job in claim(cursor, 10).jobs]
    Lane.objects.update(paused_until="2001-01-02T00:00:00Z")
    assert {"a": 1} == shares(claim(cursor, 10))


def walk(cursor, stand):
    """Claim until there is a job, or none; return this claim, and when one is due."""
    seconds, looks, claimed = [], 0, None
    while claimed is None or (claimed.has_more and not claimed.jobs):
        claimed = claim(cursor, 1, stand)
        seconds, looks = [*seconds, claimed.next_seconds], looks + 1
        stand = claimed.stand
        assert looks < 9
    return claimed, seconds


@pytest.mark.parametrize("after", ["", "a20", "a39", "z"])
def test_many_lanes_without_a_due_job_do_not_end_the_walk(cursor, monkeypatch, after):
    """A claim that looks at so many goes on with the next ones, from wherever on."""
    monkeypatch.setattr(fair, "LOOKS_MAX", 16)
    for number in range(40):
        wait_in(f"a{number:02}", run_after=HOUR)
    (last,) = wait_in("m")

    claimed, _ = walk(cursor, fair.Stand(after, 1))
    assert [last] == [job.id for job in claimed.jobs]


def test_what_somebody_has_locked_does_not_hold_up_its_lane(cursor, new_cursor):
    """The next claim passes it by; and takes it when it is asked for again."""
    first, *others = wait_in("a", 6)
    other = new_cursor()
    other.execute("BEGIN")
    other.execute("SELECT FROM pgqueue_job WHERE id = %s FOR UPDATE", [first])

    claimed = claim(cursor, 2)
    assert (others[:1], [first]) == ([j.id for j in claimed.jobs], claimed.passed)
    assert [] == claim(cursor, 1).jobs
    claimed = claim(cursor, 2, passed=claimed.passed)
    assert (others[1:3], []) == ([job.id for job in claimed.jobs], claimed.passed)
    other.execute("ROLLBACK")
    assert [first] == [job.id for job in claim(cursor, 1).jobs]


# After the claim ---------------------------------------------------------------------


def test_no_job_goes_to_two_claims(new_cursor):
    """Of claims at the same time."""
    for number in range(20):
        wait_in(f"lane {number}", 20)
    cursors = [new_cursor() for _ in range(4)]
    start = threading.Barrier(len(cursors))

    def drain(own):
        taken, stand, has_more = [], NOBODY, True
        start.wait()
        while has_more:
            claimed = claim(own, 7, stand)
            taken += [job.id for job in claimed.jobs]
            stand, has_more = claimed.stand, claimed.has_more or bool(claimed.jobs)
        return taken

    with ThreadPoolExecutor(len(cursors)) as pool:
        taken = [job_id for some in pool.map(drain, cursors) for job_id in some]

    assert (400, 400) == (len(taken), len(set(taken)))


def test_a_retry_has_had_its_turn(cursor):
    """It is visible by its back-off, as that of a job without a lane."""
    (job_id,) = wait_in("a")
    claim(cursor, 1)
    again = Ended(id=job_id, delivery=1, delay_seconds=60)

    assert {job_id} == retry(cursor, worker="w", ended=[again])
    row = Job.objects.get(pk=job_id)
    assert (None, None) == (row.leased_by, row.lane_due_at)
    assert row.visible_at is not None
