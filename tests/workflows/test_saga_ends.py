"""Saga: what could keep one from its end, or end it too early."""

from __future__ import annotations

import pytest

from django_pgqueue import InvalidOption, saga
from django_pgqueue.models import DeadLetter, Workflow
from django_pgqueue.tasks import operate
from django_pgqueue.testing import drain
from tests.app.saga_tasks import FAILS, LOG, REJECTS, acked_first, large, order

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _clean():
    for kept in (LOG, FAILS, REJECTS):
        kept.clear()
    yield
    for kept in (LOG, FAILS, REJECTS):
        kept.clear()


def waiting_for_people():
    """Return a saga whose first compensation was rejected."""
    FAILS["ship"] = -1
    REJECTS.add("refund")
    result = order.start(order_id=7, amount=5)
    drain(retries=True)
    assert "compensating" == result.refresh().status
    return result


@pytest.mark.xfail(strict=True, reason="advance.sql sets finished_at")
def test_a_saga_that_compensates_has_not_finished():
    """However long it takes: what has finished is purged with its steps."""
    waiting_for_people()

    assert Workflow.objects.get().finished_at is None


@pytest.mark.xfail(strict=True, reason="start_steps.sql leaves no dead letter")
def test_a_compensation_whose_job_cannot_be_stored_waits_for_people(settings):
    """As a dead letter, or there is nothing that they could redrive or set aside."""
    settings.PGQUEUE = {"PAYLOAD_BYTES_MAX": 1_024}
    result = large.start(size=600)
    drain(retries=True)

    assert "compensating" == result.refresh().status
    assert 1 == DeadLetter.objects.count()


@pytest.mark.xfail(strict=True, reason="letters_gone.sql leaves it dead")
def test_a_compensation_whose_dead_letter_is_deleted_does_not_hold_the_saga_up():
    """By people, or by the retention: it can be redriven no more."""
    result = waiting_for_people()
    operate.delete_dead_letters([DeadLetter.objects.get().id])
    drain(retries=True)

    assert "compensated" == result.refresh().status


@pytest.mark.xfail(strict=True, reason="saga.py checks no ack_policy")
def test_a_step_that_is_acked_before_it_runs_is_refused():
    """Nobody would hear that it has failed, and the saga would have succeeded."""
    bad = saga("too-early")
    bad.step(acked_first)

    with pytest.raises(InvalidOption, match="ack_policy"):
        bad.start()
