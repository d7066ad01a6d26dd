"""What the doctor says of sagas: which of them need a human."""

from __future__ import annotations

import pytest
from django.db import connection

from django_pgqueue.findings.overview import Overview
from django_pgqueue.models import DeadLetter, Job
from django_pgqueue.testing import drain
from tests.app.saga_tasks import FAILS, LOG, REJECTS, order
from tests.management.test_doctor import database, examined, trouble
from tests.management.test_pgqueue import DONE, run

__all__ = ["database"]  # A fixture.


@pytest.fixture(autouse=True)
def _clean():
    for kept in (LOG, FAILS, REJECTS):
        kept.clear()
    yield
    for kept in (LOG, FAILS, REJECTS):
        kept.clear()


def test_a_compensation_that_is_dead_stops_its_saga():
    """Until somebody retries it, as the way out says."""
    FAILS["ship"] = -1
    REJECTS.add("refund")
    saga = order.start(order_id=7, amount=5, key="order-7")
    drain(retries=True)
    letter = DeadLetter.objects.get()

    finding = trouble("sagas")
    assert ("error", [saga.id]) == (finding["severity"], finding["value"])
    assert finding["what"] == (
        f"1 saga does not get on with undoing: place-order order-7 (saga {saga.id}: "
        f"its refund, job {letter.id}, is dead)."
    )
    assert "flows retry SAGA" in finding["way_out"]
    with connection.cursor() as cursor:
        [shown] = [
            each
            for each in Overview(cursor, ["workflows"]).findings
            if each.check == "sagas"
        ]
    assert finding["what"] == shown.what

    REJECTS.clear()
    assert DONE == run("flows", "retry", saga.id)[0]
    drain(retries=True)
    assert "ok" == examined()[1]["sagas"]["severity"]


def test_a_compensation_that_fails_again_and_again():
    """It is told from the tenth failure on; an attempt under way is none yet."""
    FAILS.update(ship=-1, refund=-1)
    saga = order.start(order_id=7, amount=5)
    while not (job := Job.objects.filter(task__endswith="refund").first()):
        drain(max_jobs=1)
    job = Job.objects.filter(pk=job.pk)
    job.update(attempt=9, deliveries=9)
    assert "ok" == examined()[1]["sagas"]["severity"]

    job.update(attempt=10, deliveries=10)
    finding = trouble("sagas")
    assert ("warning", [saga.id]) == (finding["severity"], finding["value"])
    assert f"its refund, job {job.get().pk}, has failed 10 times" in finding["what"]
    job.update(leased_by="worker")
    assert "ok" == examined()[1]["sagas"]["severity"]
