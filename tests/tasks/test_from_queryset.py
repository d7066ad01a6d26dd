"""From a queryset: rows become jobs in the database, with the arguments of delay()."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.db.models import Case, F, OuterRef, Subquery, Sum, Value, When
from django.db.models.functions import Concat, Upper
from django.test.utils import CaptureQueriesContext

from django_pgqueue import (
    InvalidArgument,
    PayloadTooLarge,
    signals,
)
from django_pgqueue.models import Job
from django_pgqueue.tasks.from_queryset import FIELDS_MAX, KINDS
from django_pgqueue.tasks.payload import decode_value
from tests.app.models import EveryField, Order
from tests.app.tasks import add, noop

pytestmark = pytest.mark.django_db

ORDERS = Order.objects.order_by("pk")


@pytest.fixture
def orders():
    """Three orders, by name."""
    return [Order.objects.create(name=name) for name in ("c", "a", "b")]


def texts():
    """Return the arguments of all jobs as JSON text, in the order of their ids."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT kwargs::text FROM pgqueue_job ORDER BY id")
        return [text for (text,) in cursor.fetchall()]


def stored():
    """Return the arguments of all jobs as a task would get them."""
    return [decode_value(text) for text in texts()]


# One job a row -----------------------------------------------------------------------


def test_every_row_becomes_a_job_in_one_statement(orders):
    """In the queryset's order; the number of jobs comes back."""
    with CaptureQueriesContext(connection) as queries:
        count = noop.from_queryset(Order.objects.order_by("name"), order_id="pk")

    c, a, b = orders
    assert (3, 1) == (count, len(queries))
    assert [{"order_id": o.pk} for o in (a, b, c)] == stored()
    assert {("tests.app.tasks.noop", "default", 0, 5)} == set(
        Job.objects.values_list("task", "queue", "priority", "max_attempts")
    )
    assert [[]] * 3 == list(Job.objects.values_list("args", flat=True))


def test_fields_of_related_rows_are_reached_by_lookups(orders):
    """A foreign key is its primary key."""
    order = orders[0]
    row = EveryField.objects.create(order=order, integer=5)
    EveryField.objects.create(order=None)

    noop.from_queryset(
        EveryField.objects.order_by("pk"),
        key="order",
        by_id="order_id",
        name="order__name",
        row="pk",
    )

    first, second = stored()
    assert {
        "key": order.pk,
        "by_id": order.pk,
        "name": "c",
        "row": row.pk,
    } == first
    assert (None, None) == (second["key"], second["name"])


def test_a_percent_sign_is_no_placeholder(orders):
    """In a value of the query, or in one of its expressions."""
    Order.objects.create(name="100%")

    noop.from_queryset(
        Order.objects.filter(name__contains="%"),
        name=Concat("name", Value(" %s %(x)s {}")),
        constant=Value("%s {0}"),
    )

    assert [{"name": "100% %s %(x)s {}", "constant": "%s {0}"}] == stored()


# Values are those of delay() ---------------------------------------------------------

MOMENT = datetime(2026, 7, 1, 12, 30, 15, 120000, tzinfo=UTC)

VALUES = {
    "big": [0, -(2**63), 2**63 - 1, 2**53 + 1],
    "binary": [b"", b"\x00\xff" * 100],
    "boolean": [True, False],
    "char": ["", "plain", '\u202eemoji 😀 " \\ \n', "x" * 100],
    "date": [date(2026, 2, 28), date.min, date.max],
    "datetime": [
        MOMENT,
        datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC),
    ],
    "decimal": [Decimal("1.10"), Decimal("-0.00001"), Decimal(10**24)],
    "duration": [
        timedelta(0),
        timedelta(days=-1, microseconds=1),
        timedelta(days=400, seconds=5, microseconds=999_999),
        timedelta(days=100_000_000),
    ],
    "email": ["a@example.com"],
    "float": [0.0, 3.0, -1.5, 1e-7, 0.1, 1e16, 1.7976931348623157e308, 5e-324],
    "integer": [0, -5],
    "ip": ["10.0.0.1", "2001:db8::1"],
    "small": [0, 7],
    "text": ["", "many\nlines"],
    "time": [time(0), time(23, 59, 59, 999_999), time(12, 30)],
    "uuid": [UUID(int=0), UUID("12345678-1234-5678-1234-567812345678")],
}


@pytest.mark.parametrize("field", VALUES)
def test_a_value_reaches_the_task_as_from_delay(field):
    """The same Python value of the same type, NULL as None."""
    values = [*VALUES[field], None]
    for value in values:
        EveryField.objects.create(**{field: value})
    rows = EveryField.objects.order_by("pk")

    noop.from_queryset(rows, value=field)
    in_sql = [found["value"] for found in stored()]
    Job.objects.all().delete()
    noop.bulk({"value": getattr(row, field)} for row in rows)
    in_python = [found["value"] for found in stored()]

    assert values == in_python == in_sql
    assert [type(value) for value in in_python] == [type(value) for value in in_sql]


def test_expressions_are_arguments_too(orders):
    """F, functions, conditions, subqueries, aggregates."""
    EveryField.objects.create(order=orders[0], integer=2)
    EveryField.objects.create(order=orders[0], integer=3)
    total = (
        EveryField.objects.filter(order=OuterRef("pk"))
        .values("order")
        .annotate(total=Sum("integer"))
        .values("total")
    )

    noop.from_queryset(
        Order.objects.filter(pk=orders[0].pk),
        a=F("pk") + 1,
        b=Upper("name"),
        c=Case(When(name="c", then=Value(1)), default=Value(0)),
        d=Subquery(total),
        e=F("name"),
    )

    assert [{"a": orders[0].pk + 1, "b": "C", "c": 1, "d": 5, "e": "c"}] == stored()


def test_the_database_writes_a_value_of_every_field_that_is_let_through():
    """No kind of field is in the table of kinds that these tests do not store."""
    tested = {f.get_internal_type() for f in EveryField._meta.fields}
    same_column = {
        "AutoField", "BigAutoField", "SmallAutoField", "FilePathField", "SlugField",
        "IPAddressField", "PositiveBigIntegerField", "PositiveIntegerField",
        "SmallIntegerField", "URLField", "EmailField",
    }  # fmt: skip

    assert set(KINDS) - same_column <= tested


# What is refused ---------------------------------------------------------------------


REFUSED = {
    "list": (lambda: noop.from_queryset([1]), r"queryset is a list; it must be a Qu"),
    "other database": (
        lambda: noop.from_queryset(ORDERS.using("queue"), a="pk"),
        r"queryset reads from database 'queue', but jobs are stored in 'default'",
    ),
    "unknown parameter": (
        lambda: add.from_queryset(ORDERS, left="pk", right="pk", rigth="pk"),
        r"arguments do not fit: .*'rigth'",
    ),
    "unknown field": (
        lambda: noop.from_queryset(ORDERS, a="nmae"),
        r"fields\.a is 'nmae': Cannot resolve keyword 'nmae' into field",
    ),
    "value": (
        lambda: noop.from_queryset(ORDERS, a=7),
        r"fields\.a is 7, a int; .*Value\(…\)",
    ),
    "json": (
        lambda: noop.from_queryset(EveryField.objects.all(), a="json"),
        r"fields\.a is 'json', a JSONField, whose values the database cannot write",
    ),
    "custom field": (
        lambda: noop.from_queryset(ORDERS, a="receipt"),
        r"fields\.a is 'receipt', a JobField",
    ),
    "constant": (
        lambda: noop.from_queryset(ORDERS, a=Value([float("nan")])),
        r"fields\.a\[0\] is nan, which JSON cannot hold",
    ),
    "too many": (
        lambda: noop.from_queryset(
            ORDERS, **{f"a{n}": "pk" for n in range(FIELDS_MAX + 1)}
        ),
        r"fields are 51; from_queryset takes up to 50",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_call_sends_no_query(name):
    """The message names the field."""
    call, message = REFUSED[name]

    with (
        CaptureQueriesContext(connection) as queries,
        pytest.raises(InvalidArgument, match=message),
    ):
        call()

    assert 0 == len(queries)
    assert 0 == Job.objects.count()


def test_one_row_that_is_too_large_stores_none(settings, orders):
    """The transaction stays usable, and the message tells the size."""
    settings.PGQUEUE = {"PAYLOAD_BYTES_MAX": 1_000}
    EveryField.objects.create(text="x")
    EveryField.objects.create(text="x" * 1_000)

    with (
        transaction.atomic(),
        pytest.raises(PayloadTooLarge, match="noop: a row: arguments take 1,009 b"),
    ):
        noop.from_queryset(EveryField.objects.all(), a="text")

    assert 0 == Job.objects.count()
    assert 1 == noop.from_queryset(EveryField.objects.filter(text="x"), a="text")


# Transactions, signals, async --------------------------------------------------------


def test_a_receiver_hears_of_every_job(orders):
    """Only then do ids come to Python."""
    heard = []

    def receiver(sender, job_id, **fields):
        heard.append(job_id)

    signals.job_enqueued.connect(receiver, sender=noop)
    try:
        noop.from_queryset(ORDERS, a="pk")
    finally:
        signals.job_enqueued.disconnect(receiver, sender=noop)

    assert list(Job.objects.order_by("pk").values_list("pk", flat=True)) == heard
