"""TERM: in the order jobs flow; the grace; a second TERM; TERM to the group."""

from __future__ import annotations

import os
import signal

import pytest

from django_pgqueue.models import ArchivedJob, Job
from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import (
    children_of,
    enqueue,
    live_row,
    wait_until_final,
)

pytestmark = pytest.mark.smoke

EXIT_CLEAN, EXIT_LEFT_BEHIND = 0, 3


def run_gated(start_worker, the_ledger, gate, count=2, **options):
    """Return a worker that runs *count* gated jobs, and their ids."""
    ids = enqueue(crash_tasks.record_through_gate, count, gate=str(gate))
    worker = start_worker(threads=2, **options)
    wait_for(lambda: len(the_ledger.entries("start")) == count, what="they run")
    return worker, ids


def test_term_finishes_running_jobs_and_returns_claimed_ones_untouched(
    start_worker, the_ledger, gate
):
    """
    Jobs claimed ahead go back at once, attempt 0 and no crash, while the running ones
    are still running; those finish, and the exit status is 0.
    """
    worker = start_worker(threads=2)
    wait_until_final(enqueue(crash_tasks.record, 40))  # Now it knows short jobs.
    running = enqueue(crash_tasks.record_through_gate, 2, gate=str(gate))
    wait_for(lambda: len(the_ledger.entries("start")) == 42, what="both run")
    ahead = enqueue(crash_tasks.record, 20)
    claimed = Job.objects.filter(pk__in=ahead, leased_by__isnull=False, attempt=1)
    wait_for(claimed.count, what="some jobs are claimed ahead")

    worker.signal(signal.SIGTERM)
    worker.wait_for_lines("stopping ")
    free = Job.objects.filter(pk__in=ahead, leased_by=None, attempt=0, crashes=0).due()
    wait_for(lambda: free.count() == 20, what="what was claimed ahead is back")
    assert 2 == Job.objects.running().filter(pk__in=running).count()
    assert [] == [e for e in the_ledger.entries("end") if e.job in running]
    gate.touch()

    assert EXIT_CLEAN == worker.wait()
    final = wait_until_final(running)
    assert {("succeeded", 0, 1)} == {
        (place.state, place.crashes, place.deliveries) for place in final.values()
    }
    assert 20 == free.count()
    start_worker()
    wait_until_final(ahead)
    assert {} == the_ledger.repeated()


def test_a_job_that_outlives_the_grace_is_handed_back_and_the_status_is_3(
    start_worker, the_ledger, gate
):
    """A stop is no failure of the job: its attempt is given back, a note stays."""
    ids = enqueue(crash_tasks.record_through_gate, 1, gate=str(gate))
    worker = start_worker("--grace=0.2", threads=2)
    wait_for(lambda: the_ledger.entries("start"), what="it runs")

    assert EXIT_LEFT_BEHIND == worker.stop()

    assert worker.lines(rf"interrupted job={ids[0]} ")
    row = live_row(ids[0], "leased_by", "attempt", "crashes", "visible_at <= now()")
    assert (None, 0, 0, True) == row
    gate.touch()
    start_worker()
    final = wait_until_final(ids)
    assert (0, 1) == (final[ids[0]].crashes, final[ids[0]].attempt)
    (error,) = ArchivedJob.objects.get(pk=ids[0]).errors
    assert error["type"].endswith("Interrupted")


def test_a_second_term_leaves_at_once_and_its_jobs_are_back_within_seconds(
    start_worker, the_ledger, gate
):
    """It does not wait for the grace, of an hour here; the status is 3."""
    worker, ids = run_gated(
        start_worker, the_ledger, gate, pgqueue={"GRACE_SECONDS": 3_600}
    )
    children = worker.children()

    worker.signal(signal.SIGTERM)
    worker.wait_for_lines("stopping ")
    worker.signal(signal.SIGTERM)

    assert EXIT_LEFT_BEHIND == worker.wait()
    assert [] == [pid for pid in children if pid in children_of(1)]
    for job in ids:
        row = live_row(job, "leased_by", "attempt", "crashes", "visible_at <= now()")
        assert (None, 0, 0, True) == row
    gate.touch()
    start_worker()
    final = wait_until_final(ids)
    assert {"succeeded"} == {place.state for place in final.values()}


@pytest.mark.parametrize("number, times", [(signal.SIGHUP, 2), (signal.SIGINT, 1)])
def test_a_terminal_stops_a_worker_in_order(
    start_worker, the_ledger, gate, number, times
):
    """Ctrl+C comes to the whole group; HUP does, too, and from the shell once more."""
    worker, ids = run_gated(start_worker, the_ledger, gate)

    for _ in range(times):
        os.killpg(worker.popen.pid, number)
        worker.wait_for_lines("stopping ")
    gate.touch()

    assert EXIT_CLEAN == worker.wait()
    final = wait_until_final(ids)
    assert {("succeeded", 0)} == {(each.state, each.crashes) for each in final.values()}


def test_quit_leaves_at_once_and_crashes_nobodys_job(start_worker, the_ledger, gate):
    """Ctrl+\\ comes to the whole group."""
    worker, ids = run_gated(start_worker, the_ledger, gate)

    os.killpg(worker.popen.pid, signal.SIGQUIT)

    assert EXIT_LEFT_BEHIND == worker.wait()
    for job in ids:
        row = live_row(job, "leased_by", "attempt", "crashes", "visible_at <= now()")
        assert (None, 0, 0, True) == row
    gate.touch()


def test_a_drained_worker_leaves_by_itself(start_worker, the_ledger):
    """--drain: every due job is run, a future one is left, the status is 0."""
    ids = enqueue(crash_tasks.record, 30)
    future = crash_tasks.record.using(run_after="1h").delay()

    worker = start_worker("--drain", processes=2, wait=False)

    assert EXIT_CLEAN == worker.wait()
    final = wait_until_final(ids)
    assert {"succeeded"} == {place.state for place in final.values()}
    assert "scheduled" == future.status
