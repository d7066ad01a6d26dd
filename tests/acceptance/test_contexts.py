"""The context of a running job: progress, extended leases, and its end."""

from __future__ import annotations

from django_pgqueue.models import ArchivedJob, Job
from tests.app import control_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, live_row, wait_until_final


def started(the_ledger, event="start"):
    wait_for(lambda: the_ledger.entries(event), what=f"the job notes {event!r}")


def test_progress_is_seen_while_the_job_runs_and_its_last_word_stays(
    start_worker, the_ledger, gate
):
    """Ten thousand reports cost few writes; the archived row has the last one."""
    (job,) = enqueue(control_tasks.reports, steps=10_000, gate=str(gate))
    start_worker()

    wait_for(
        lambda: (
            live_row(job, "progress")
            == ('{"done": 0, "note": "begun", "total": 10000}',)
        ),
        what="the first report",
    )
    gate.touch()
    wait_until_final([job])

    assert {"done": 10_000, "total": 10_000} == ArchivedJob.objects.get().progress


def test_an_extended_lease_lasts(start_worker, the_ledger, gate):
    """By the database's clock; neither the heartbeat nor a default shortens it."""
    (job,) = enqueue(control_tasks.extends, duration="10m", gate=str(gate))
    start_worker(pgqueue={"LEASE_SECONDS": 1})
    started(the_ledger, "extended")

    row = Job.objects.get(pk=job)
    assert 590 < (row.visible_at - row.leased_at).total_seconds() < 620
    gate.touch()
    assert "succeeded" == wait_until_final([job])[job].state
