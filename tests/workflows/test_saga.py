"""Saga: each ends succeeded or compensated, never both, never neither."""

from __future__ import annotations

import pytest
from django.db.models import F

from django_pgqueue import DeclarationError, InvalidArgument, WorkflowFailed, saga
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Step, Workflow
from django_pgqueue.tasks import operate
from django_pgqueue.testing import drain
from tests.app.saga_tasks import CANCELS, FAILS, LOG, REJECTS, later, order

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _clean():
    for kept in (LOG, FAILS, REJECTS, CANCELS):
        kept.clear()
    yield
    for kept in (LOG, FAILS, REJECTS, CANCELS):
        kept.clear()


def run():
    result = order.start(order_id=7, amount=5)
    drain(retries=True)
    return result.refresh()


def test_steps_run_in_their_order_with_what_they_name():
    """Arguments of start(), and results of earlier steps."""
    result = run()

    assert [
        ("reserve", 7),
        ("charge", 7, 5),
        ("ship", 7, "charge-7"),
    ] == LOG
    assert ("succeeded", "shipped") == (result.status, result.get())
    assert 3 == Workflow.objects.get().succeeded


def test_what_has_succeeded_is_undone_in_reverse_order():
    """When a step has used up its own attempts; with the results of the steps."""
    FAILS["ship"] = -1
    result = run()

    assert ["reserve", "charge", "refund", "release"] == [name for name, *_ in LOG]
    assert ("refund", 7, "charge-7", "stock-7") == LOG[2]
    assert ("release", 7, "stock-7") == LOG[3]
    assert "compensated" == result.status
    with pytest.raises(WorkflowFailed, match=r"compensated\. Step ship .* ship fails"):
        result.get()


def test_a_step_that_has_not_succeeded_is_not_undone():
    """Nor is one that never ran."""
    FAILS["charge"] = -1
    result = run()
    assert "compensated" == result.status
    assert ["reserve", "release"] == [name for name, *_ in LOG]
    assert {
        "reserve": "succeeded",
        "charge": "dead",
        "ship": "not needed",
        "release": "succeeded",
        "refund": "not needed",
    } == {step.name: step.state for step in result.steps()}

    LOG.clear()
    FAILS["reserve"] = -1
    assert "compensated" == run().status
    assert [] == LOG


def test_the_dead_letter_of_a_step_is_set_aside():
    """It cannot be redriven any more: that would do again what is undone."""
    FAILS["ship"] = -1
    run()

    assert not DeadLetter.objects.exists()
    row = ArchivedJob.objects.get(task__endswith="ship")
    assert "cancelled" == row.state
    assert ("set_aside", "exhausted") == (
        row.errors[-1]["kind"],
        row.errors[-1]["dead_for"],
    )
    assert "dead" == Step.objects.get(name="ship").state


def test_a_compensation_is_tried_until_it_succeeds():
    """Far more often than a step; the next one waits for it."""
    FAILS.update(ship=-1, refund=20)
    result = run()

    assert "compensated" == result.status
    assert ["reserve", "charge", "refund", "release"] == [name for name, *_ in LOG]
    refund = ArchivedJob.objects.get(task__endswith="refund")
    assert 21 == refund.attempt


def test_a_compensation_that_is_dead_waits_for_a_human():
    """The saga is compensating until it is redriven, and goes on then."""
    FAILS["ship"] = -1
    REJECTS.add("refund")
    result = run()

    assert "compensating" == result.status
    assert ["reserve", "charge"] == [name for name, *_ in LOG]
    letter = DeadLetter.objects.get()
    REJECTS.clear()
    operate.retry([letter.id])
    drain(retries=True)

    assert "compensated" == result.refresh().status
    assert ["refund", "release"] == [name for name, *_ in LOG[2:]]


def test_a_compensation_that_is_set_aside_was_done_by_hand():
    """The next one starts."""
    FAILS["ship"] = -1
    REJECTS.add("refund")
    result = run()
    operate.set_aside([DeadLetter.objects.get().id], reason="done by hand")
    drain(retries=True)

    assert "compensated" == result.refresh().status
    assert ["reserve", "charge", "release"] == [name for name, *_ in LOG]
    assert "cancelled" == Step.objects.get(name="refund").state


def test_a_step_that_is_cancelled_is_compensated_for():
    """By itself, or by somebody."""
    CANCELS.add("ship")
    assert "compensated" == run().status
    assert ["reserve", "charge", "refund", "release"] == [name for name, *_ in LOG]


def test_a_step_that_has_expired_is_compensated_for():
    """It never started, and what came before it is undone."""
    result = order.start(order_id=7, amount=5)
    drain(max_jobs=1)
    Job.objects.update(expires_at=F("enqueued_at"))
    drain()

    assert ["reserve", "release"] == [name for name, *_ in LOG]
    assert "compensated" == result.refresh().status


def test_a_key_starts_one_saga():
    """Also when the first one has ended."""
    first, second = (
        (order.start(order_id=7, amount=5, key="order-7"), drain())[0] for _ in range(2)
    )

    assert (first.id, False, "succeeded") == (second.id, second.created, second.status)
    assert 3 == len(LOG)


def test_a_cancel_compensates():
    """Of what has been done by then."""
    result = order.start(order_id=7, amount=5)
    drain(max_jobs=1)
    assert result.cancel()
    drain(retries=True)

    assert ["reserve", "release"] == [name for name, *_ in LOG]
    assert "compensated" == result.refresh().status


def test_a_cancel_may_leave_all_as_it_is():
    """Nothing is undone then."""
    result = order.start(order_id=7, amount=5)
    drain(max_jobs=1)
    assert result.cancel(compensate=False)
    drain(retries=True)

    assert ["reserve"] == [name for name, *_ in LOG]
    assert "compensated" == result.refresh().status


def test_a_compensation_may_wait():
    """not_before counts from when its turn has come."""
    FAILS["then"] = -1
    result = later.start()
    drain(retries=True)

    assert "compensating" == result.refresh().status
    job = Job.objects.get()
    assert 890 < (job.visible_at - job.enqueued_at).total_seconds() <= 900


def test_arguments_are_checked_before_anything_is_stored():
    """One that is missing, and one that nobody takes."""
    with pytest.raises(InvalidArgument, match=r"missing .*amount"):
        order.start(order_id=7)
    with pytest.raises(InvalidArgument, match="place-order: colour is taken by no"):
        order.start(order_id=7, amount=5, colour="red")
    assert not Workflow.objects.exists()


def test_what_is_declared_twice_or_not_at_all_is_refused():
    """With the names that there are."""
    bad = saga("bad")
    bad.step(compensate="undo_it")(order_step := _declared("one"))
    with pytest.raises(DeclarationError, match="has a step '_one' already"):
        bad.step(order_step)
    with pytest.raises(DeclarationError, match="names the compensation 'undo_it'"):
        bad.start()
    with pytest.raises(InvalidArgument, match="steps are none"):
        saga("empty").start()
    with pytest.raises(DeclarationError, match="is a task already"):
        bad.step(_declared("one"), queue="other")


def _declared(name: str):
    from tests.app import workflow_tasks

    return workflow_tasks._one
