"""Spread and unique: a fan-out that is repeated stores what is not there yet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgqueue import Unique, task
from django_pgqueue.models import Job
from django_pgqueue.timetable.offset import offset
from tests.app.models import Order

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
NOON = datetime(2050, 1, 1, 12, tzinfo=UTC)
ORDERS = Order.objects.order_by("pk")


@pytest.fixture
def refresh(declared):
    """A task with one live job for each customer."""

    @task(name="shop.refresh", unique=Unique(by="customer_id"))
    def refresh(customer_id, lang="en"):
        pass

    return refresh


def due():
    """Return when each customer is due."""
    return {job.kwargs["customer_id"]: job.run_after for job in Job.objects.all()}


def test_jobs_that_are_there_already_stay_where_they_are(refresh):
    """The others get the moments of their keys; one statement, whichever way."""
    orders = [Order.objects.create() for _ in range(20)]
    items = [{"customer_id": order.pk} for order in orders]
    day = refresh.using(run_after=NOON).spread(DAY, by="customer_id")
    expected = {
        order.pk: NOON + offset("shop.refresh", [order.pk], DAY) for order in orders
    }

    day.delay(customer_id=orders[0].pk)
    with CaptureQueriesContext(connection) as queries:
        results = day.bulk(items[:10])
    assert (1, 9) == (len(queries), sum(result.created for result in results))
    with CaptureQueriesContext(connection) as queries:
        assert 10 == day.from_queryset(ORDERS, customer_id="pk")
    assert 1 == len(queries)
    assert expected == due()

    later = refresh.using(run_after=NOON + DAY).spread(DAY, by="customer_id")
    assert 0 == later.from_queryset(ORDERS, customer_id="pk")
    assert not any(result.created for result in later.bulk(items))
    assert not later.delay(customer_id=orders[0].pk).created
    assert expected == due()


def test_a_rescheduled_job_gets_the_moment_of_the_later_window(refresh):
    """By conflict="reschedule"."""
    order = Order.objects.create()
    rule = Unique(by="customer_id", conflict="reschedule")
    moved = refresh.using(unique=rule)
    expected = offset("shop.refresh", [order.pk], DAY)

    moved.using(run_after=NOON).spread(DAY, by="customer_id").delay(
        customer_id=order.pk
    )
    assert {order.pk: NOON + expected} == due()
    moved.using(run_after=NOON + DAY).spread(DAY, by="customer_id").from_queryset(
        ORDERS, customer_id="pk"
    )
    assert {order.pk: NOON + DAY + expected} == due()
