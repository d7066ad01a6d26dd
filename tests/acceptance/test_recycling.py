"""Recycling: a worker process that has done enough is replaced, and no job pays."""

from __future__ import annotations

import signal
import time

import pytest

from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, live_row, wait_until_final

RECYCLING = "recycling  worker="
EXIT_LEFT_BEHIND = 3


pytestmark = pytest.mark.slow


def enqueue_gated(tmp_path, count):
    """Return jobs and the gate that each waits for."""
    gates = [tmp_path / f"gate{number}" for number in range(count)]
    return {
        enqueue(crash_tasks.record_through_gate, gate=str(gate))[0]: gate
        for gate in gates
    }


def wait_for_starts(the_ledger, count):
    return wait_for(
        lambda: len(found := the_ledger.entries("start")) == count and found,
        what=f"{count} jobs run",
    )


def test_a_process_is_replaced_after_so_many_jobs(start_worker, the_ledger):
    """At once, however young it is; every job runs once, with its first attempt."""
    worker = start_worker("--recycle-jobs=10", threads=2)

    final = wait_until_final(enqueue(crash_tasks.record, 10))
    for count in (2, 3):
        worker.wait_for_lines("started    worker=", count)
        final |= wait_until_final(enqueue(crash_tasks.record, 10))

    assert {("succeeded", 0, 1)} == {
        (row.state, row.crashes, row.attempt) for row in final.values()
    }
    assert {} == the_ledger.repeated()
    assert worker.lines(f"{RECYCLING}.* after 10 jobs")
    assert [] == worker.lines("died |WARNING")
    assert 0 == worker.stop()


def test_a_running_job_gets_all_the_time_that_it_needs(
    start_worker, the_ledger, tmp_path
):
    """
    No grace ends it, and its process takes no other job meanwhile. A stop ends the
    wait, after the grace.
    """
    gates = enqueue_gated(tmp_path, 2)
    worker = start_worker("--recycle-jobs=1", "--grace=0.5", threads=2)
    wait_for_starts(the_ledger, 2)
    short, long = gates

    gates[short].touch()
    worker.wait_for_lines("stopping ")
    (behind,) = enqueue(crash_tasks.record)
    noticed = time.monotonic()
    wait_for(lambda: time.monotonic() - noticed > 1.0, what="the grace were over")

    assert (1, True) == live_row(long, "deliveries", "leased_by IS NOT NULL")
    assert (0,) == live_row(behind, "deliveries")
    worker.signal(signal.SIGTERM)
    worker.wait()
    assert 1 == len(worker.lines(f"interrupted job={long} "))
    assert (None, 0, 0) == live_row(long, "leased_by", "attempt", "crashes")
