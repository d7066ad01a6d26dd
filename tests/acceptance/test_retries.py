"""What follows an attempt that did not succeed, and what is kept of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue.models import ArchivedJob, DeadLetter
from tests.app import crash_tasks, tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, live_row, wait_until_final

pytestmark = pytest.mark.smoke


def test_a_failed_job_waits_visibly_for_its_next_attempt(start_worker):
    """Its status is retrying, its back-off at most five seconds after the first."""
    start_worker()

    result = tasks.fails.using(retries=100).delay("not today")
    wait_for(lambda: result.refresh().status == "retrying", what="it failed once")

    attempt, leased_by, wait = live_row(
        result.id, "attempt", "leased_by", "visible_at - now()"
    )
    assert (True, None) == (attempt >= 1, leased_by)
    assert wait <= timedelta(seconds=5 * 2 ** (attempt - 1))
    error = result.refresh().errors[0]
    assert ("error", "not today", 1) == (
        error["kind"],
        error["message"],
        error["attempt"],
    )


def test_a_dead_letter_keeps_the_traceback_of_every_attempt(start_worker, the_ledger):
    """Three attempts, three entries, each with its own message, time and worker."""
    worker = start_worker()

    (job,) = enqueue(crash_tasks.fail_recorded)
    final = wait_until_final([job])

    assert ("dead", "exhausted", 3) == (
        final[job].table,
        final[job].state,
        final[job].attempt,
    )
    errors = DeadLetter.objects.get(pk=job).errors
    assert [1, 2, 3] == [error["attempt"] for error in errors]
    assert {*worker.names()} == {error["worker"] for error in errors}
    for error in errors:
        assert "in fail_recorded" in error["traceback"]
        assert f"attempt {error['attempt']} of a job" in error["traceback"]
    times = [datetime.fromisoformat(error["at"]) for error in errors]
    assert times == sorted(times)


def test_a_snooze_burns_no_attempt_and_retry_later_does(start_worker, the_ledger):
    """Both run three times; the snoozed one ends at attempt 1, without an error."""
    start_worker()

    (snoozed,) = enqueue(crash_tasks.later, how="snooze", times=2)
    (retried,) = enqueue(crash_tasks.later, how="retry", times=2)
    final = wait_until_final([snoozed, retried])

    assert {snoozed: 3, retried: 3} == the_ledger.starts()
    assert (1, 3) == (final[snoozed].attempt, final[snoozed].deliveries)
    assert (3, 3) == (final[retried].attempt, final[retried].deliveries)
    assert [] == ArchivedJob.objects.get(pk=snoozed).errors
    assert 2 == len(ArchivedJob.objects.get(pk=retried).errors)


def test_a_finished_job_is_archived_with_its_result_times_and_worker(start_worker):
    """Times are the database's, in the order in which things happened."""
    worker = start_worker()
    before = datetime.now(UTC)

    result = crash_tasks.record.delay({"what": ["a", 1, None]})
    wait_until_final([result.id])

    assert ("succeeded", {"what": ["a", 1, None]}) == (result.status, result.result)
    row = ArchivedJob.objects.get(pk=result.id)
    assert [row.worker] == worker.names()
    assert before - timedelta(seconds=1) < row.enqueued_at
    assert row.enqueued_at < row.started_at < row.finished_at
    assert row.finished_at < datetime.now(UTC) + timedelta(seconds=1)
