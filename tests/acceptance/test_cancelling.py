"""Cancelling: a job that waits is archived at once; one that runs is asked to stop."""

from __future__ import annotations

import pytest

from django_pgqueue.tasks.operate import cancel
from tests.app import control_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, live_row, wait_until_final


def started(the_ledger, count=1):
    wait_for(lambda: len(the_ledger.entries("start")) >= count, what="the jobs run")


@pytest.mark.parametrize(
    "then, state",
    [
        ("return", "succeeded"),
        ("cancel", "cancelled"),
        ("fail", "cancelled"),
        ("snooze", "cancelled"),
    ],
)
def test_a_running_job_sees_that_it_is_cancelled(start_worker, the_ledger, then, state):
    """
    Long before the poll. What it had done when it returned counts; every other end is
    the one that was asked for.
    """
    (job,) = enqueue(control_tasks.until_cancelled, then=then)
    start_worker()
    started(the_ledger)

    answer = cancel([job], by="the test")
    final = wait_until_final([job])

    assert ([], [job]) == (answer.cancelled, answer.requested)
    assert 1 == len(the_ledger.entries("cancelled"))
    assert ("archive", state, 1) == (
        final[job].table,
        final[job].state,
        final[job].deliveries,
    )
    assert 1 == the_ledger.starts()[job]


def test_a_cancel_is_heard_without_listen(start_worker, the_ledger):
    """The heartbeat looks about once a second."""
    (job,) = enqueue(control_tasks.until_cancelled, then="cancel")
    start_worker(pgqueue={"LISTEN": False})
    started(the_ledger)

    cancel([job])

    assert "cancelled" == wait_until_final([job])[job].state


def test_a_job_that_waits_behind_another_in_its_worker_is_cancelled(
    start_worker, the_ledger, gate
):
    """It was claimed ahead, or not yet: it never starts."""
    (first,) = enqueue(control_tasks.reports, steps=1, gate=str(gate))
    start_worker(threads=1)
    started(the_ledger)
    (second,) = enqueue(control_tasks.until_cancelled)

    cancel([second])
    wait_for(
        lambda: (
            live_row(second, "id") is None
            or live_row(second, "cancel_requested_at") != (None,)
        ),
        what="it is cancelled, or asked to stop",
    )
    gate.touch()

    assert "cancelled" == wait_until_final([first, second])[second].state
    assert 0 == the_ledger.starts()[second]
