"""Expiry: a job that has not started by its time is archived, and never run."""

from __future__ import annotations

from django_pgqueue.models import Job
from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, live_row, wait_until_final


def test_a_job_that_comes_too_late_is_archived_as_expired(start_worker, the_ledger):
    """One beside it that has time left runs."""
    late = crash_tasks.record.using(expires=0.05).delay().id
    good = crash_tasks.record.using(expires="1h").delay().id
    wait_for(
        lambda: live_row(late, "expires_at < clock_timestamp()") == (True,),
        what="its time has passed",
    )
    start_worker()

    final = wait_until_final([late, good])

    assert ["expired", "succeeded"] == [final[late].state, final[good].state]
    assert {good: 1} == dict(the_ledger.starts())


def test_a_job_expires_between_its_retries(start_worker, the_ledger):
    """It was started in time once; its next attempt would not be."""
    (job,) = enqueue(crash_tasks.later, how="retry", times=100)
    Job.objects.filter(pk=job).update(max_attempts=1_000)
    start_worker()
    wait_for(lambda: the_ledger.starts()[job] >= 2, what="it runs again")

    # Under the worker's hands: the row may be locked for a moment, and is then free.
    Job.objects.filter(pk=job).update(expires_at=Job.objects.get().enqueued_at)
    final = wait_until_final([job])

    assert ("archive", "expired") == (final[job].table, final[job].state)
