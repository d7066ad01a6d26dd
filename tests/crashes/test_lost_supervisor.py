"""The supervisor dies, alone or with its children; and children die at random."""

from __future__ import annotations

import os
import signal

from django_pgqueue.models import ArchivedJob
from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import (
    enqueue,
    group_exists,
    is_alive,
    live_row,
    wait_until_final,
)

SHORT = {"LEASE_SECONDS": 2, "POLL_INTERVAL_SECONDS": 0.5}


def test_children_of_a_killed_supervisor_hand_back_and_leave(
    start_worker, the_ledger, gate
):
    """
    Nobody rescues an orphan's jobs, so it stops by itself within a few seconds and
    hands back what does not finish. No lease is left, none has to run out.
    """
    ids = enqueue(crash_tasks.record_through_gate, 3, gate=str(gate))
    worker = start_worker(threads=2)
    wait_for(lambda: len(the_ledger.entries("start")) == 2, what="two of three run")
    (child,) = worker.children()

    worker.signal(signal.SIGKILL)
    wait_for(lambda: not is_alive(child), what="the orphan leaves")

    for job in ids:
        row = live_row(job, "leased_by", "attempt", "crashes", "visible_at <= now()")
        assert (None, 0, 0, True) == row

    gate.touch()
    start_worker()
    final = wait_until_final(ids)
    assert {"succeeded"} == {place.state for place in final.values()}


def test_jobs_of_a_killed_host_come_back_when_their_leases_run_out(
    start_worker, the_ledger, gate
):
    """
    Everything of a worker is killed at once: another one takes its jobs over after a
    lease. Each was delivered twice, is counted one crash, and keeps its attempt.
    """
    ids = enqueue(crash_tasks.record_through_gate, 3, gate=str(gate))
    lost = start_worker(pgqueue=SHORT)
    wait_for(lambda: len(the_ledger.entries("start")) == 3, what="all three run")

    lost.signal_group(signal.SIGKILL)
    wait_for(lambda: not group_exists(lost.pid), what="the whole group is gone")
    gate.touch()
    start_worker(pgqueue=SHORT)
    final = wait_until_final(ids)

    assert {("succeeded", 1, 2, 1)} == {
        (place.state, place.crashes, place.deliveries, place.attempt)
        for place in final.values()
    }
    assert dict.fromkeys(ids, 1) == the_ledger.repeated()
    for archived in ArchivedJob.objects.filter(pk__in=ids):
        assert ["lease_expired"] == [entry["kind"] for entry in archived.errors]


def test_a_row_locked_by_a_stranger_does_not_hold_up_the_supervisor(
    start_worker, the_ledger, gate, cursor
):
    """
    A dead child's row is locked by somebody's transaction: the supervisor starts the
    next child all the same, which runs other jobs; the row is taken back later.
    """
    (held,) = enqueue(crash_tasks.record_through_gate, gate=str(gate))
    worker = start_worker()
    wait_for(lambda: the_ledger.entries("start"), what="it runs")
    (child,) = worker.children()

    with cursor.connection.transaction():
        cursor.execute("SELECT id FROM pgqueue_job WHERE id = %s FOR UPDATE", [held])
        os.kill(child, signal.SIGKILL)
        worker.wait_for_lines("died ")
        (other,) = enqueue(crash_tasks.record)
        wait_until_final([other])
    gate.touch()
    final = wait_until_final([other, held])

    assert {"succeeded"} == {place.state for place in final.values()}
    assert 1 == final[held].crashes
