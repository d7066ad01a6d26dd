"""A lease is renewed for as long as its job runs."""

from __future__ import annotations

from django.db import connection

from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, live_row, wait_until_final


def test_a_job_that_runs_longer_than_its_lease_stays_its_workers(
    start_worker, the_ledger, gate
):
    """Renewed again and again, it is not delivered to the worker beside it."""
    short = {"LEASE_SECONDS": 1, "POLL_INTERVAL_SECONDS": 0.2}
    (job,) = enqueue(crash_tasks.record_through_gate, gate=str(gate))
    start_worker(pgqueue=short)
    wait_for(lambda: the_ledger.entries("start"), what="it runs")
    start_worker(pgqueue=short)
    (first_end,) = live_row(job, "visible_at")

    def is_long_past():
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp() > %s + interval '1s'", [first_end])
            return cursor.fetchone()[0]

    wait_for(is_long_past, what="twice the first lease is over")
    gate.touch()
    final = wait_until_final([job])

    assert {job: 1} == the_ledger.starts()
    assert ("succeeded", 0, 1) == (
        final[job].state,
        final[job].crashes,
        final[job].deliveries,
    )
