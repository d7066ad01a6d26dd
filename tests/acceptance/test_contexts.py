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


def test_a_lost_lease_cannot_be_extended(start_worker, the_ledger, gate):
    """The task hears of it, and what follows is stale."""
    (job,) = enqueue(control_tasks.extends, gate=str(gate))
    worker = start_worker()
    started(the_ledger, "extended")

    Job.objects.filter(pk=job).update(leased_by="somebody", deliveries=2)
    gate.touch()
    started(the_ledger, "lost")
    worker.wait_for_lines("stale ")

    (lost,) = the_ledger.entries("lost")
    assert f"Job {job}: delivery 1 has lost its lease" in lost.note
    assert ("somebody", 2) == live_row(job, "leased_by", "deliveries")
