"""What follows an attempt that did not succeed, and what is kept of it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from django_pgqueue.models import DeadLetter
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
