"""Spread: jobs over a window, sampled, or at the moments of what they are about."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.db.models import Value
from django.test.utils import CaptureQueriesContext

from django_pgqueue import InvalidArgument, InvalidOption, task
from django_pgqueue.models import Job
from django_pgqueue.timetable.offset import MICROSECOND, offset
from tests.app.models import EveryField, Order

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
NOON = datetime(2050, 1, 1, 12, tzinfo=UTC)
ORDERS = Order.objects.order_by("pk")


@pytest.fixture
def refresh(declared):
    """A task with a default, and one parameter that has to be named."""

    @task(name="shop.refresh")
    def refresh(customer_id, region="north", *, lang="en"):
        pass

    return refresh


def clock():
    """Return the database's time."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


def moments():
    """Return when the jobs are due, in the order of their ids."""
    return list(Job.objects.order_by("pk").values_list("run_after", flat=True))


def offsets():
    """Return how long after noon they are due, and forget them."""
    found = [moment - NOON for moment in moments()]
    Job.objects.all().delete()
    return found


# One statement -----------------------------------------------------------------------


def test_items_are_spread_by_the_statement_that_stores_them(refresh):
    """However many statements bulk() would have without."""
    items = [{"customer_id": n} for n in range(5_001)]

    for by in (None, "customer_id"):
        with CaptureQueriesContext(connection) as queries:
            results = refresh.spread("24h", by=by).bulk(items)

        assert (1, 5_001) == (len(queries), len(results))
        assert [item["customer_id"] for item in items] == [
            job.kwargs["customer_id"]
            for job in Job.objects.filter(pk__in=[r.id for r in results]).order_by("pk")
        ]
        Job.objects.all().delete()


# Stable ------------------------------------------------------------------------------

KEYS = {
    "big": [0, -(2**63), 2**63 - 1, 7],
    "boolean": [True, False],
    "char": ["", "anna", 'ä " \\ \n €', "\x1f", "7"],
    "date": [date(2026, 2, 28), date.min, date.max],
    "email": ["a@example.com"],
    "integer": [0, -5, 7],
    "ip": ["10.0.0.1", "2001:db8::1"],
    "small": [0, 7],
    "text": ["many\nlines", '{"value": 1}', "null"],
    "uuid": [UUID(int=0), UUID("12345678-1234-5678-1234-567812345678")],
}


@pytest.mark.parametrize("field", KEYS)
def test_every_way_to_enqueue_comes_to_the_same_moment(field, refresh):
    """delay(), bulk(), from_queryset() and the plain function, whatever the type."""
    values = KEYS[field]
    EveryField.objects.bulk_create(EveryField(**{field: value}) for value in values)
    rows = EveryField.objects.order_by("pk")
    spread = refresh.using(run_after=NOON).spread(DAY, by="customer_id")
    expected = [offset("shop.refresh", [value], DAY) for value in values]

    spread.from_queryset(rows, customer_id=field)
    assert expected == offsets()
    spread.bulk([{"customer_id": value} for value in values])
    assert expected == offsets()
    spread.bulk([(value,) for value in values])
    assert expected == offsets()
    for value in values:
        spread.delay(value)
    assert expected == offsets()


# Sampled -----------------------------------------------------------------------------


# The window --------------------------------------------------------------------------


def test_a_window_has_its_start_and_lacks_its_end(refresh):
    """Of three microseconds, jobs are due at the first, the second and the third."""
    items = [{"customer_id": n} for n in range(300)]
    Order.objects.bulk_create(Order() for _ in range(300))
    short = refresh.using(run_after=NOON)

    for spread in (
        short.spread(timedelta(microseconds=3)),
        short.spread(timedelta(microseconds=3), by="customer_id"),
    ):
        spread.bulk(items)
        assert {MICROSECOND * n for n in range(3)} == set(offsets())
        spread.from_queryset(ORDERS, customer_id="pk")
        assert {MICROSECOND * n for n in range(3)} == set(offsets())
        for n in range(60):
            spread.delay(n)
        assert {MICROSECOND * n for n in range(3)} == set(offsets())


def test_a_window_begins_later_with_run_after(refresh):
    """A duration or a moment; of a window that has begun, some are due at once."""
    Order.objects.bulk_create(Order() for _ in range(50))
    later = refresh.using(run_after="2h").spread("1h")
    before = clock()
    later.bulk([(n,) for n in range(50)])
    later.from_queryset(ORDERS, customer_id="pk")
    later.delay(1)
    assert 101 == len(moments())
    assert before + timedelta(hours=2) <= min(moments())
    assert max(moments()) < clock() + timedelta(hours=3)
    Job.objects.all().delete()

    begun = clock() - timedelta(hours=12)
    refresh.using(run_after=begun).spread("24h", by="customer_id").bulk(
        [(n,) for n in range(100)]
    )
    late = [m for m in moments() if m - begun < timedelta(hours=12)]
    assert len(late) == Job.objects.due().count()
    assert 20 < len(late) < 80


# What is refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [0.5, 3.0, None, Decimal(1), datetime(2026, 1, 1, tzinfo=UTC), b"x", [1], {"a": 1}],
    ids=repr,
)
def test_a_key_has_one_text(value, refresh):
    """What two places may write differently is refused, before SQL is sent."""
    spread = refresh.spread("24h", by="customer_id")
    kind = type(value).__qualname__

    with CaptureQueriesContext(connection) as queries:
        with pytest.raises(InvalidArgument, match=f"a {kind}; spread.* needs text, a"):
            spread.delay(value)
        with pytest.raises(InvalidArgument, match=f"item 1 customer_id is .* {kind}"):
            spread.bulk([(1,), (value,)])
        with pytest.raises(InvalidArgument, match="customer_id is"):
            spread.from_queryset(ORDERS, customer_id=Value(value))
    assert 0 == len(queries)


def test_rows_without_a_key_are_an_error_and_nothing_is_stored(refresh):
    """They would have no moment; the caller's transaction stays usable."""
    EveryField.objects.bulk_create(EveryField(integer=n) for n in (1, None, 2, None))
    spread = refresh.spread("24h", by="customer_id")

    with transaction.atomic():
        with pytest.raises(
            InvalidArgument,
            match=r"shop.refresh: queryset has 2 rows where customer_id is NULL, .*"
            r"__isnull=False",
        ):
            spread.from_queryset(EveryField.objects.all(), customer_id="integer")
        assert 0 == Job.objects.count()
        rows = EveryField.objects.filter(integer__isnull=False)
        assert 2 == spread.from_queryset(rows, customer_id="integer")
    # As an argument that is no part of the key, NULL is a value.
    sampled = refresh.spread("24h")
    assert 4 == sampled.from_queryset(EveryField.objects.all(), customer_id="integer")


def test_jobs_do_not_expire_within_their_window(refresh):
    """Else the last ones would never run; told where the options are said."""
    day = refresh.spread("24h")
    words = "jobs would expire .* before the end of their window"
    now = clock()

    with pytest.raises(InvalidOption, match=words):
        day.using(expires=DAY - MICROSECOND)
    with pytest.raises(InvalidOption, match=words):
        refresh.using(expires="1h").spread("24h")
    with pytest.raises(InvalidOption, match=words):
        day.using(run_after="1h", expires="24h")
    with pytest.raises(InvalidOption, match=words):
        day.using(run_after=NOON, expires=NOON + DAY - MICROSECOND)
    with pytest.raises(InvalidOption, match=words):
        day.using(run_after=NOON, expires="30d")
    with pytest.raises(InvalidOption, match=words):
        day.using(run_after="1h", expires=now + timedelta(hours=24))
    with pytest.raises(InvalidOption, match="must be in the years 1900 to 9000"):
        day.using(run_after=datetime(8999, 12, 31, 12, tzinfo=UTC))

    day.using(expires=DAY)
    day.using(run_after="1h", expires="25h")
    day.using(run_after=NOON, expires=NOON + DAY)
    day.using(run_after="1h", expires=now + timedelta(hours=26))
