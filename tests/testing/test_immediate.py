"""Immediate mode: delay() runs its job at once, in the caller's transaction."""

from __future__ import annotations

import pytest
from django.db import transaction
from django.test import TestCase, override_settings

from django_pgqueue import task
from django_pgqueue.models import Job
from django_pgqueue.testing import immediate
from tests.app.models import Order
from tests.app.tasks import (
    Unlucky,
    add,
    fails,
    fails_once,
    make_order,
    noop,
    snoozes,
    tells_context,
)

pytestmark = pytest.mark.django_db


class AsAUserWritesIt(TestCase):
    """With the setting, or around a test or a block."""

    @override_settings(PGQUEUE={"MODE": "immediate"})
    def test_by_the_setting(self):
        """For a whole suite it stands in the settings."""
        assert "succeeded" == make_order.delay("x").status
        assert 1 == Order.objects.count()

    @immediate()
    def test_by_the_decorator(self):
        """For one test."""
        assert 3 == add.delay(1, 2).result

    def test_by_the_block(self):
        """And not outside of it."""
        with immediate():
            inside = noop.delay()
        outside = noop.delay()

        assert ["succeeded", "ready"] == [inside.status, outside.status]


def test_the_job_is_a_real_one():
    """Its row says that it ran, and its task sees a job."""
    with immediate():
        result = tells_context.using(queue="mail", headers={"a": 1}).delay()

    assert (result.id, 1, "mail", {"a": 1}) == tuple(
        result.result[name] for name in ("id", "attempt", "queue", "headers")
    )
    assert result.result["idempotency_key"].endswith(f"-{result.id}")


def test_every_way_to_enqueue_runs():
    """Singly and in bulk, by a queryset, and from async code."""
    for name in "xy":
        Order.objects.create(name=name)

    @task(name="enqueues")
    async def enqueues():
        await make_order.adelay("adelay")

    with immediate():
        make_order.enqueue("enqueue")
        make_order.apply_async(["apply"])
        make_order.bulk([("bulk",)])
        make_order.from_queryset(Order.objects.filter(name="x"), name="name")
        enqueues.delay()

    assert ["adelay", "apply", "bulk", "enqueue", "x", "x", "y"] == sorted(
        Order.objects.values_list("name", flat=True)
    )
    assert 0 == Job.objects.count()


def test_a_failure_can_come_out_of_delay():
    """Once it is settled; a snooze is none."""
    with immediate(raise_errors=True):
        snoozes.delay()
        with pytest.raises(Unlucky, match="bad luck"):
            fails.delay()

    assert {0, 1} == set(Job.objects.values_list("attempt", flat=True))
    with override_settings(PGQUEUE={"MODE": "immediate"}):
        fails.delay()


def test_it_belongs_to_the_callers_transaction():
    """What the job wrote rolls back with the job."""
    with immediate(), transaction.atomic():
        make_order.delay("x")
        assert 1 == Order.objects.count()
        transaction.set_rollback(True)

    assert 0 == Order.objects.count()


def test_on_commit_waits_for_the_commit(django_capture_on_commit_callbacks):
    """The job is not even stored before."""
    with immediate():
        with django_capture_on_commit_callbacks(execute=True):
            make_order.on_commit().delay("x")
            assert 0 == Order.objects.count()
        assert 1 == Order.objects.count()


@pytest.mark.django_db(transaction=True)
def test_without_a_transaction_everything_is_committed(cursor):
    """Step by step, as a worker would."""
    with immediate():
        make_order.delay("x")
        fails_once.delay()

    cursor.execute(
        "SELECT (SELECT count(*) FROM testapp_order),"
        "       (SELECT count(*) FROM pgqueue_archived_job),"
        "       (SELECT count(*) FROM pgqueue_dead_letter)"
    )
    assert (1, 1, 1) == cursor.fetchone()
