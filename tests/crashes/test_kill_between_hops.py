"""
kill -9 between every two hops of a job's life.

The lease and the poll are ten minutes here: whatever is recovered within a test is
recovered by the supervisor, which sees its child die.
"""

from __future__ import annotations

import pytest

from django_pgqueue.models import DeadLetter
from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, wait_until_final


def states(final):
    return {place.state for place in final.values()}


def crashes(final):
    return {job: place.crashes for job, place in final.items() if place.crashes}


def test_a_kill_between_claim_and_start_costs_nothing(
    start_worker, the_ledger, failpoint
):
    """Jobs that were only claimed go back as if never claimed, and run once."""
    ids = enqueue(crash_tasks.record, 40)
    point = failpoint("claimed", times=2)

    start_worker(failpoint=point)
    final = wait_until_final(ids)

    assert 2 == len(point.hits())
    assert {} == the_ledger.repeated()
    assert {"succeeded"} == states(final)
    assert {(0, 1)} == {(place.crashes, place.attempt) for place in final.values()}
    assert max(place.deliveries for place in final.values()) > 1


@pytest.mark.parametrize(
    "point,repeats", [("running", 1), ("ack.before", 1), ("ack.after", 0)]
)
def test_a_kill_repeats_exactly_the_job_that_had_no_ack(
    start_worker, the_ledger, failpoint, point, repeats
):
    """
    One thread: killed before the ack's commit, its job runs again; after it, none.

    The attempt of the crash is given back, and the crash counted.
    """
    ids = enqueue(crash_tasks.record, 30)
    killing = failpoint(point, times=2)

    start_worker(threads=1, failpoint=killing)
    final = wait_until_final(ids)

    assert 2 == len(killing.hits())
    assert {"succeeded"} == states(final)
    # The same job again: its second process was killed at the same place.
    assert 2 * repeats == sum(the_ledger.repeated().values())
    assert the_ledger.repeated() == crashes(final)
    assert {1} == {place.attempt for place in final.values()}


@pytest.mark.parametrize("point", ["performed", "ack.before"])
def test_a_kill_repeats_at_most_one_job_per_thread(
    start_worker, the_ledger, failpoint, point
):
    """Four threads, settle="immediate": no kill repeats more than four jobs."""
    ids = enqueue(crash_tasks.record, 200)
    # Two: what a third kill hits alone is dead-lettered as the cause of them.
    killing = failpoint(point, times=2)

    start_worker(threads=4, failpoint=killing)
    final = wait_until_final(ids)

    assert 2 == len(killing.hits())
    assert {"succeeded"} == states(final)
    assert sum(the_ledger.repeated().values()) <= 4 * 2
    # A crash is counted for a job that was marked as running, and for no other. One
    # that was marked and had not written its first line yet did not repeat.
    counted = crashes(final)
    assert all(n <= counted.get(job, 0) for job, n in the_ledger.repeated().items())
    assert sum(counted.values()) <= 4 * 2
    assert {1} == {place.attempt for place in final.values()}


def test_a_kill_loses_no_batched_job(start_worker, the_ledger, failpoint):
    """settle="batched": jobs of the write under way may repeat; none is lost."""
    ids = enqueue(crash_tasks.record_batched, 400)
    killing = failpoint("ack.before", times=2)

    start_worker(threads=4, failpoint=killing)
    final = wait_until_final(ids)

    assert 2 == len(killing.hits())
    assert {"succeeded"} == states(final)
    assert len(ids) == len(the_ledger.starts())


def test_a_batched_job_that_had_returned_repeats_without_a_crash(
    start_worker, the_ledger, failpoint
):
    """Its thread had left it: whatever ended the process, it was not this job."""
    (job,) = enqueue(crash_tasks.record_batched)
    killing = failpoint("ack.before")

    start_worker(threads=1, failpoint=killing)
    final = wait_until_final([job])

    assert {job: 2} == dict(the_ledger.starts())
    assert ("succeeded", 0, 1) == (
        final[job].state,
        final[job].crashes,
        final[job].attempt,
    )


@pytest.mark.parametrize(
    "point,starts",
    [
        ("retry.before", [1, 1, 2, 3]),
        ("retry.after", [1, 2, 3]),
        ("dead.before", [1, 2, 3, 3]),
        ("dead.after", [1, 2, 3]),
    ],
)
def test_a_kill_around_a_retry_or_dead_letter_write_burns_no_attempt(
    start_worker, the_ledger, failpoint, point, starts
):
    """Killed before the write, the attempt runs again; after it, it does not."""
    (job,) = enqueue(crash_tasks.fail_recorded)
    killing = failpoint(point)

    start_worker(threads=1, failpoint=killing)
    final = wait_until_final([job])

    # After the commit that was waited for, the process dies by and by.
    assert 1 == len(wait_for(killing.hits, what="the kill"))
    assert starts == [entry.attempt for entry in the_ledger.entries("start")]
    assert ("dead", "exhausted", 3) == (
        final[job].table,
        final[job].state,
        final[job].attempt,
    )
    kinds = [entry["kind"] for entry in DeadLetter.objects.get(pk=job).errors]
    assert 3 == kinds.count("error")
    assert len(starts) - 3 == kinds.count("worker_lost") == final[job].crashes
