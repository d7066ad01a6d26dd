"""Jobs that cannot run, do not end, or should not run any more."""

from __future__ import annotations

import pytest

from django_pgqueue.models import DeadLetter, Job
from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, live_row, wait_until_final

pytestmark = pytest.mark.smoke

RECORD = "tests.app.crash_tasks.record"


def ends(final):
    return {job: (place.table, place.state) for job, place in final.items()}


# Time-outs ---------------------------------------------------------------------------


# Unknown and unreadable --------------------------------------------------------------


def test_a_job_of_an_unknown_task_waits_for_a_deploy_and_burns_no_attempt(
    start_worker, cursor
):
    """It is held; once UNKNOWN_TASK_GRACE_SECONDS are over, it is a dead letter."""
    start_worker("--queues=default", pgqueue={"POLL_INTERVAL_SECONDS": 0.5})
    job = Job.objects.create(task="gone.away").pk

    def since():
        return live_row(job, "headers ->> 'pgqueue.unknown_since'")[0]

    wait_for(since, what="the worker met it")
    held = live_row(job, "attempt", "leased_by", "crashes", "visible_at > now()")
    assert (0, None, 0, True) == held
    # Two hours later, and looked at again.
    cursor.execute(
        "UPDATE pgqueue_job SET visible_at = now(), headers = jsonb_build_object("
        "'pgqueue.unknown_since', now() - interval '2 hours') WHERE id = %s",
        [job],
    )
    final = wait_until_final([job])

    assert {job: ("dead", "unknown_task")} == ends(final)
    held, error = DeadLetter.objects.get(pk=job).errors
    assert ("unknown_task", "error") == (held["kind"], error["kind"])
    assert "gone.away" in error["message"]


# Too late, too often -----------------------------------------------------------------


def test_planned_waits_are_no_deliveries_too_many(start_worker, the_ledger):
    """A job may snooze far more often than DELIVERIES_MAX says."""
    (job,) = enqueue(crash_tasks.later, how="snooze", times=30)

    start_worker(pgqueue={"DELIVERIES_MAX": 12})
    final = wait_until_final([job])

    assert {job: ("archive", "succeeded")} == ends(final)
    assert {job: 31} == the_ledger.starts()
