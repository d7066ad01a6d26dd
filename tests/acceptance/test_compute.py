"""Tasks that compute: worker processes with one thread."""

from __future__ import annotations

import pytest
from django.db import connection

from django_pgqueue.models import DeadLetter
from tests.app import control_tasks, crash_tasks, lane_tasks, pool_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, live_row, wait_until_final

pytestmark = pytest.mark.smoke

# Of the worker with one thread in each process; the other one has other names.
SESSIONS = """
SELECT application_name FROM pg_stat_activity
 WHERE datname = current_database()
   AND (application_name LIKE 'pgqueue loops %' OR application_name LIKE '% our task')
 ORDER BY application_name
"""
CUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name LIKE 'pgqueue loops %'
"""


@pytest.mark.slow
def test_a_job_past_its_hard_timeout_costs_its_process_and_no_other(
    start_worker, the_ledger, gate
):
    """
    Its process is killed although the job keeps the interpreter's lock. The job beside
    it runs in another process, and once.
    """
    (deaf,) = enqueue(pool_tasks.keeps_the_lock)
    (beside,) = enqueue(crash_tasks.record_through_gate, gate=str(gate))
    modules = {"TASK_MODULES": ["crash_tasks", "pool_tasks", "short_hard_grace"]}
    worker = start_worker(processes=2, threads=1, pgqueue=modules)

    final = wait_until_final([deaf], 60)
    gate.touch()
    final |= wait_until_final([beside, *enqueue(crash_tasks.record, 10)])

    assert ("dead", "timeout", 0) == (
        final[deaf].table,
        final[deaf].state,
        final[deaf].crashes,
    )
    assert ("succeeded", 1) == (final[beside].state, final[beside].deliveries)
    (error,) = DeadLetter.objects.get(pk=deaf).errors
    assert "ran longer than its timeout of 0.3 s" in error["message"]
    assert 1 == len(worker.lines(f"ignored    job={deaf}"))
    wait_for(lambda: 3 == len(worker.names()), what="another process takes its place")
    assert {} == the_ledger.repeated()


def test_a_process_with_one_thread_holds_at_most_two_connections(
    start_worker, the_ledger, gate
):
    """
    One for its loops and one for its task, whatever these do; of the whole fleet, the
    process that leads has one more. It hears of jobs, also after it has lost them.
    """
    start_worker("--queues=other", threads=2)  # It leads.
    worker = start_worker(
        "--queues=default",
        processes=3,
        threads=1,
        environment={"PGAPPNAME": "pgqueue our task"},
    )
    loops = {f"pgqueue loops {name}"[:63] for name in worker.names()}
    atomic = enqueue(control_tasks.atomic_through_gate, 2, gate=str(gate))
    (reports,) = enqueue(control_tasks.reports, steps=500, gate=str(gate))
    wait_for(lambda: len(the_ledger.entries("start")) == 3, what="all three run")
    wait_for(lambda: live_row(reports, "progress") != (None,), what="a report")

    busy = sessions()
    gate.touch()
    laned = [lane_tasks.step.delay("one", number).id for number in range(20)]
    final = wait_until_final([*atomic, reports, *laned])
    later = sessions()
    with connection.cursor() as cursor:
        cursor.execute(CUT)
    final |= wait_until_final(enqueue(crash_tasks.record, 3))

    assert {"succeeded"} == {row.state for row in final.values()}
    assert sorted([*loops, *2 * ["pgqueue our task"]]) == busy
    assert loops == set(later) - {"pgqueue our task"}
    assert len(later) <= 2 * 3
    assert {} == the_ledger.repeated()
    assert 0 == worker.stop()


def sessions():
    """Return the names of the sessions that the worker has on the server."""
    with connection.cursor() as cursor:
        cursor.execute(SESSIONS)
        return [name for (name,) in cursor.fetchall()]
