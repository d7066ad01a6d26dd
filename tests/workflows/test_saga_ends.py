"""Saga: what could keep one from its end, or end it too early."""

from __future__ import annotations

import pytest

from django_pgqueue import InvalidOption, saga
from django_pgqueue.models import DeadLetter, Step, Workflow
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


def test_a_saga_that_compensates_has_not_finished():
    """However long it takes: what has finished is purged with its steps."""
    waiting_for_people()

    assert Workflow.objects.get().finished_at is None


def test_a_compensation_whose_job_cannot_be_stored_waits_for_people(settings):
    """They have it tried again, or say that it was done by hand."""
    settings.PGQUEUE = {"PAYLOAD_BYTES_MAX": 1_024}
    result = large.start(size=600)
    drain(retries=True)

    assert "compensating" == result.refresh().status
    (step,) = Step.objects.filter(kind="compensation", state="dead")
    assert "could not be stored" in step.error["message"]
    assert [step.id] == result.resolve(again=True)
    assert "compensating" == result.status
    assert [step.id] == result.resolve(again=False)
    assert "compensated" == result.status


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("is_deleted", [True, False])
def test_people_let_a_saga_go_on(again, is_deleted):
    """Whether the dead letter is there, or was deleted, by people or the retention."""
    result = waiting_for_people()
    if is_deleted:
        operate.delete_dead_letters([DeadLetter.objects.get().id])
        drain(retries=True)
        assert "compensating" == result.refresh().status
    REJECTS.clear()
    (step,) = result.resolve(again=again)
    drain(retries=True)

    assert "compensated" == result.refresh().status
    assert (["refund"] if again else []) + ["release"] == [n for n, *_ in LOG[2:]]
    assert [] == result.resolve(again=again)
    assert ("succeeded" if again else "cancelled") == Step.objects.get(id=step).state


def test_a_step_that_is_acked_before_it_runs_is_refused():
    """Nobody would hear that it has failed, and the saga would have succeeded."""
    bad = saga("too-early")
    bad.step(acked_first)

    with pytest.raises(InvalidOption, match="ack_policy"):
        bad.start()
