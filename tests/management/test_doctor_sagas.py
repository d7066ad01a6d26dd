"""What the doctor says of sagas: which of them need a human."""

from __future__ import annotations

import pytest
from django.db import connection

from django_pgqueue.models import DeadLetter, Job, Workflow
from django_pgqueue.operators import overview
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.queues import doctor
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
            for each in overview.read(cursor, ["workflows"]).findings
            if each.check == "sagas"
        ]
    assert finding["what"] == shown.what

    REJECTS.clear()
    assert DONE == run("flows", "retry", saga.id)[0]
    drain(retries=True)
    assert "ok" == examined()[1]["sagas"]["severity"]


@pytest.mark.parametrize("failures, told", [(9, False), (10, True)])
def test_a_compensation_that_fails_again_and_again(failures, told):
    """It is told from the tenth failure on; an attempt under way is none yet."""
    FAILS.update(ship=-1, refund=-1)
    saga = order.start(order_id=7, amount=5)
    while not (job := Job.objects.filter(task__endswith="refund").first()):
        drain(max_jobs=1)
    Job.objects.filter(pk=job.pk).update(attempt=failures, deliveries=failures)

    finding = examined()[1]["sagas"]
    assert told is (finding["severity"] == "warning")
    if told:
        assert f"its refund, job {job.pk}, has failed 10 times" in finding["what"]
        assert [saga.id] == finding["value"]
        Job.objects.filter(pk=job.pk).update(leased_by="worker")
        assert "ok" == examined()[1]["sagas"]["severity"]


def test_a_saga_that_gets_on_is_not_told():
    """Nor is one whose step is dead: that is undone."""
    FAILS["ship"] = -1
    order.start(order_id=7, amount=5)
    drain(max_jobs=4)
    assert "compensating" == Workflow.objects.get().state
    assert "ok" == examined()[1]["sagas"]["severity"]


def test_the_look_reads_only_sagas_that_compensate():
    """
    However many workflows there are, before they were analysed, and whatever the
    statistics say of one that had all steps.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgqueue_step (id, workflow_id, name, kind, after, next, waits,"
            " state) SELECT -n, 0, 'x', 'step', '{}', '{}', 0, 'succeeded' "
            "FROM generate_series(1, 1000) n"
        )
        cursor.execute("ANALYZE pgqueue_step")
        cursor.execute(
            "INSERT INTO pgqueue_workflow (name, kind, state, steps) "
            "SELECT 'x', 'saga', CASE WHEN n % 1000 = 0 THEN 'compensating' "
            "ELSE 'succeeded' END, 1 FROM generate_series(1, 20000) n"
        )
        cursor.execute(
            "INSERT INTO pgqueue_step (id, workflow_id, name, kind, after, next, waits,"
            " state) SELECT id, id, 'x', 'compensation', '{}', '{}', 0, 'dead' "
            "FROM pgqueue_workflow"
        )
        limit(cursor, seconds=5, plans=Plans.IN_ORDER)  # As who asks does.
        cursor.execute(
            f"EXPLAIN (ANALYZE, BUFFERS) {doctor.STUCK_SAGAS}",
            {"attempts": 10, "limit": 10_000},
        )
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "pgqueue_workflow_undoing" in plan
    assert "Seq Scan on pgqueue_step" not in plan
    assert "pgqueue_step_workflow" in plan
