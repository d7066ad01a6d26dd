"""Tasks that compute: worker processes with one thread."""

from __future__ import annotations

import pytest

from django_pgqueue.models import DeadLetter
from tests.app import crash_tasks, pool_tasks
from tests.harness.worker_process import enqueue, wait_until_final

pytestmark = pytest.mark.smoke

# Sessions of a worker's loops carry its name; those of its tasks are "pgqueue task".
SESSIONS = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name LIKE 'pgqueue %'
"""


@pytest.mark.slow
@pytest.mark.parametrize("stubborn", [pool_tasks.stubborn, pool_tasks.keeps_the_lock])
def test_a_job_past_its_hard_timeout_costs_its_process_and_no_other(
    start_worker, the_ledger, gate, stubborn
):
    """
    Its process ends at once, or is killed where the job keeps the interpreter's lock.
    The job beside it runs in another process, and once.
    """
    (deaf,) = enqueue(stubborn)
    (beside,) = enqueue(crash_tasks.record_through_gate, gate=str(gate))
    worker = start_worker(processes=2, threads=1)

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
    assert 3 == len(worker.names())
    assert {} == the_ledger.repeated()
