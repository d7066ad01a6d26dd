"""Spread: jobs over a window, sampled, or at the moments of what they are about."""

from __future__ import annotations

import enum
import time
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.db.models import Value
from django.db.models.functions import Concat
from django.test.utils import CaptureQueriesContext
from django.utils.safestring import SafeString

from django_pgqueue import InvalidArgument, InvalidOption, PayloadTooLarge, task
from django_pgqueue.models import Job
from django_pgqueue.queues import rules as module
from django_pgqueue.tasks.from_queryset import KINDS
from django_pgqueue.tasks.keys import KEY_KINDS, key_text
from django_pgqueue.testing import drain, freeze
from django_pgqueue.timetable.offset import MICROSECOND, offset
from tests.app.models import EveryField, Order
from tests.app.tasks import noop

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


def square(counts, expected):
    """Return the chi-square of *counts* against the same number in each."""
    return sum((count - expected) ** 2 / expected for count in counts)


def distance(found, over):
    """Return Kolmogorov's: how far from even the moments are, times the root of n."""
    places = [moment / over for moment in sorted(found)]
    count = len(places)
    return count**0.5 * max(
        max(place - n / count, (n + 1) / count - place)
        for n, place in enumerate(places)
    )


def seconds(call):
    """Return how long it takes."""
    started = time.monotonic()
    call()
    return time.monotonic() - started


# Of even moments, 1 in 8,000 lots of any size is farther; the seeds are fixed.
DISTANCE_MAX = 2.2


# One statement -----------------------------------------------------------------------


def test_items_are_spread_by_the_statement_that_stores_them(refresh):
    """However many statements bulk() would have without."""
    items = [{"customer_id": n} for n in range(6_000)]

    for by in (None, "customer_id"):
        with CaptureQueriesContext(connection) as queries:
            results = refresh.spread("24h", by=by).bulk(items)

        assert (1, 6_000) == (len(queries), len(results))
        assert [item["customer_id"] for item in items] == [
            job.kwargs["customer_id"]
            for job in Job.objects.filter(pk__in=[r.id for r in results]).order_by("pk")
        ]
        Job.objects.all().delete()


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("by", [None, "order_id"], ids=["sampled", "stable"])
def test_a_hundred_thousand_rows_are_spread_over_a_day_in_one_statement(by):
    """
    In less than 3 seconds, and each minute of the day gets its share.

    Chi-square of 1,439 degrees of freedom has a mean of 1,439 and a deviation of 54.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO testapp_order (name) SELECT '' FROM generate_series(1, 100000)"
        )
        cursor.execute("SELECT setseed(0.5)")
    spread = noop.using(run_after=NOON).spread("24h", by=by)

    with CaptureQueriesContext(connection) as queries:
        took = seconds(lambda: spread.from_queryset(ORDERS, order_id="pk"))

    assert (100_000, 1) == (Job.objects.count(), len(queries))
    found = offsets()
    assert distance(found, DAY) < DISTANCE_MAX
    minutes = Counter(moment // timedelta(minutes=1) for moment in found)
    assert set(range(1_440)) == set(minutes)
    assert 1_439 - 5 * 54 < square(minutes.values(), 100_000 / 1_440) < 1_439 + 5 * 54
    if took >= 3:
        # Somebody else has the machine: then it takes long without a window, too.
        later = noop.using(run_after=NOON)
        assert took < 3 * seconds(lambda: later.from_queryset(ORDERS, order_id="pk"))


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


def test_a_key_may_be_of_several_values(refresh):
    """In the order in which by= names them; related rows count by their key."""
    order = Order.objects.create(name="north")
    EveryField.objects.create(order=order, boolean=True)
    spread = refresh.using(run_after=NOON).spread("24h", by=["region", "customer_id"])

    spread.from_queryset(
        EveryField.objects.all(), customer_id="order", region="order__name"
    )
    spread.bulk([(order.pk, "north"), {"customer_id": order.pk, "region": "north"}])
    spread.delay(order.pk, region="north")

    expected = offset("shop.refresh", ["north", order.pk], DAY)
    assert [expected] * 4 == offsets()
    refresh.using(run_after=NOON).spread("24h", by=["customer_id", "region"]).delay(
        order.pk, "north"
    )
    assert [offset("shop.refresh", [order.pk, "north"], DAY)] == offsets()


def test_what_a_call_leaves_out_counts_as_the_default(refresh):
    """The moment is the same as if it had been given."""
    order = Order.objects.create()
    by = refresh.using(run_after=NOON).spread("24h", by=("region", "lang"))

    by.delay(1)
    by.delay(2, lang="en")
    by.bulk([(3,), (4, "north"), {"customer_id": 5, "lang": "en"}])
    by.from_queryset(Order.objects.all(), customer_id="pk")
    by.from_queryset(Order.objects.all(), customer_id="pk", lang=Value("en"))

    expected = offset("shop.refresh", ["north", "en"], DAY)
    assert [expected] * 7 == offsets()
    by.from_queryset(Order.objects.all(), customer_id="pk", lang=Value("de"))
    assert [offset("shop.refresh", ["north", "de"], DAY)] == offsets()
    assert order.pk


def test_a_task_that_takes_any_name_is_spread_by_any(declared):
    """As long as the call gives it."""

    @task(name="shop.any")
    def anything(first, /, *rest, **named):
        pass

    spread = anything.using(run_after=NOON).spread("24h", by=["first", "customer"])
    spread.delay(1, 2, customer="anna")

    assert [offset("shop.any", [1, "anna"], DAY)] == offsets()
    with pytest.raises(InvalidArgument, match="customer is missing; spread"):
        spread.delay(1, 2)


def test_the_context_is_no_part_of_the_key(declared):
    """It has no place among the arguments of a job."""

    @task(name="shop.told", takes_context=True)
    def told(ctx, customer_id):
        pass

    told.using(run_after=NOON).spread("24h", by="customer_id").delay(7)

    assert [offset("shop.told", [7], DAY)] == offsets()
    with pytest.raises(InvalidOption, match="by='ctx' is no parameter"):
        told.spread("24h", by="ctx")


def test_a_value_counts_as_what_the_job_gets(refresh):
    """Members of an Enum, and subclasses of the plain types."""

    class Region(enum.Enum):
        NORTH = "north"
        SEVEN = 7

    class Day(date):
        def __str__(self):
            return "a day"

    class Loud(str):
        __slots__ = ()

        def __str__(self):
            return self.upper()

    class Number(int):
        def __str__(self):
            return "a number"

    for value, plain in (
        (Region.NORTH, "north"),
        (Region.SEVEN, 7),
        (Day(2026, 1, 2), date(2026, 1, 2)),
        (Loud("x"), "x"),
        (SafeString("<b>"), "<b>"),
        (Number(7), 7),
    ):
        refresh.using(run_after=NOON).spread("24h", by="customer_id").delay(value)
        assert [offset("shop.refresh", [plain], DAY)] == offsets()


def test_an_item_counts_as_it_was_when_it_was_read(refresh):
    """A generator may yield one dict again and again."""

    def items():
        item = {}
        for item["customer_id"] in range(3):
            yield item

    refresh.using(run_after=NOON).spread("24h", by="customer_id").bulk(items())

    assert [offset("shop.refresh", [n], DAY) for n in range(3)] == offsets()


def test_two_runs_come_to_the_same_moments(refresh):
    """And two tasks to others."""
    items = [(n,) for n in range(100)]
    spread = refresh.using(run_after=NOON).spread("24h", by="customer_id")
    spread.bulk(items)
    first = offsets()
    spread.bulk(items)

    assert first == offsets()
    noop.using(run_after=NOON).spread("24h").bulk(items)
    assert first != offsets()


# Sampled -----------------------------------------------------------------------------


def test_sampled_moments_are_spread_evenly(refresh):
    """
    Of 20,000 jobs over a day, each of 100 parts gets its share, by either statement.

    Chi-square of 99 degrees of freedom has a mean of 99 and a deviation of 14.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT setseed(0.25)")
        cursor.execute(
            "INSERT INTO testapp_order (name) SELECT '' FROM generate_series(1, 20000)"
        )
    spread = refresh.using(run_after=NOON).spread("24h")

    spread.bulk([(n,) for n in range(20_000)])
    first = offsets()
    spread.from_queryset(ORDERS, customer_id="pk")
    second = offsets()

    for found in (first, second):
        assert distance(found, DAY) < DISTANCE_MAX
        parts = Counter(moment // (DAY / 100) for moment in found)
        assert set(range(100)) == set(parts)
        assert 99 - 5 * 14 < square(parts.values(), 200) < 99 + 5 * 14
        # In no order that follows that of the items.
        rising = sum(a < b for a, b in pairwise(found))
        assert abs(rising - 10_000) < 500
    assert first != second


def test_each_call_samples_anew(refresh):
    """Also delay(), of which each call is a job of its own."""
    spread = refresh.using(run_after=NOON).spread("24h")
    for n in range(20):
        spread.delay(n)

    found = offsets()
    assert 20 == len(set(found))
    assert timedelta() <= min(found)
    assert max(found) < DAY


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


def test_a_window_begins_when_the_jobs_are_stored(refresh):
    """On the database's clock; all jobs of a call have the same one."""
    Order.objects.bulk_create(Order() for _ in range(50))
    spread = refresh.spread(MICROSECOND)

    before = clock()
    spread.bulk([(n,) for n in range(50)])
    (bulk,) = set(moments())
    Job.objects.all().delete()
    spread.from_queryset(ORDERS, customer_id="pk")
    (queryset,) = set(moments())
    Job.objects.all().delete()
    spread.delay(1)
    (one,) = moments()

    assert before <= bulk <= queryset <= one <= clock()


def test_a_window_is_one_however_many_statements(refresh, monkeypatch):
    """More jobs than a statement takes do not begin later."""
    monkeypatch.setattr(module, "SPREAD_ROWS_MAX", 250)
    items = [(n,) for n in range(600)]

    before = clock()
    refresh.spread(MICROSECOND).bulk(items)
    refresh.using(run_after="1h").spread(MICROSECOND).bulk(items)
    now, later = sorted(set(moments()))
    assert before <= now <= clock()
    assert before <= later - timedelta(hours=1) <= clock()

    Job.objects.all().delete()
    refresh.using(run_after=NOON).spread("24h", by="customer_id").bulk(items)
    assert [offset("shop.refresh", [n], DAY) for n in range(600)] == offsets()


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


def test_a_window_has_its_length_whatever_the_clocks_on_the_walls_do(refresh):
    """A day of 23 hours in Berlin is one of 24 for a window of 24 hours."""
    start = datetime(2027, 3, 27, 12, tzinfo=UTC)
    spread = refresh.using(run_after=start).spread("48h", by="customer_id")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL TIME ZONE 'Europe/Berlin'")
        spread.bulk([(n,) for n in range(50)])
        for n in range(50):
            spread.delay(n)
        cursor.execute("SET LOCAL TIME ZONE 'UTC'")

    expected = [start + offset("shop.refresh", [n], 2 * DAY) for n in range(50)]
    assert expected * 2 == moments()


def test_nothing_runs_before_its_moment(refresh):
    """Everything has run when the window has passed."""
    with freeze(NOON) as now:
        refresh.spread("24h", by="customer_id").bulk([(n,) for n in range(40)])
        due = sorted(moments())
        assert offset("shop.refresh", [0], DAY) == moments()[0] - NOON

        for passed in (due[0], due[20], due[-1]):
            now.move_to(passed - MICROSECOND)
            drain()
            assert len([m for m in due if m >= passed]) == Job.objects.count()
            now.move_to(passed)
            drain()
            assert len([m for m in due if m > passed]) == Job.objects.count()


def test_what_is_not_due_stays_stored_in_immediate_mode(refresh, settings):
    """It is not run early; what is due runs."""
    settings.PGQUEUE = {"MODE": "immediate"}
    Order.objects.create()

    refresh.spread("366d", by="customer_id").delay(7)
    refresh.spread("366d").bulk([(n,) for n in range(3)])
    refresh.spread("366d", by="customer_id").from_queryset(ORDERS, customer_id="pk")

    assert 5 == Job.objects.filter(deliveries=0).count()
    refresh.spread(MICROSECOND).from_queryset(ORDERS, customer_id="pk")
    refresh.spread(MICROSECOND).bulk([(1,)])
    assert 5 == Job.objects.count()


def test_a_call_says_the_rest_as_ever(refresh):
    """Queue, priority, tags, expiry; before spread() and after it."""
    orders = [Order.objects.create() for _ in range(2)]
    window = refresh.using(queue="slow", priority=3).spread("1h", by="customer_id")
    full = window.using(run_after=NOON, expires=NOON + DAY, tags=["x"])

    full.delay(orders[0].pk)
    full.bulk([(orders[0].pk,)])
    assert 2 == full.from_queryset(ORDERS, customer_id="pk")

    jobs = list(Job.objects.order_by("pk"))
    for job in jobs:
        assert ("slow", 3, ["x"]) == (job.queue, job.priority, job.headers["tags"])
        assert NOON + DAY == job.expires_at
    hour = timedelta(hours=1)
    first, second = (offset("shop.refresh", [order.pk], hour) for order in orders)
    assert [first, first, first, second] == offsets()


def test_the_last_window_counts(refresh):
    """And the task itself has none."""
    refresh.spread("24h", by="customer_id").spread(MICROSECOND).bulk(
        [(n,) for n in range(10)]
    )
    assert 1 == len(set(moments()))
    refresh.delay(1)
    assert [None] == list(Job.objects.order_by("-pk").values_list("run_after")[0])


def test_jobs_of_a_commit_are_spread_too(refresh, django_capture_on_commit_callbacks):
    """Checked at once, and stored after it; by async code as well."""
    spread = refresh.using(run_after=NOON).spread("24h", by="customer_id")
    with django_capture_on_commit_callbacks(execute=True):
        spread.on_commit().delay(7)
        spread.on_commit().bulk([(8,), {"customer_id": 9}])
        with pytest.raises(InvalidArgument, match=r"item 1 customer_id is 0\.5"):
            spread.on_commit().bulk([(8,), (0.5,)])
        assert 0 == Job.objects.count()

    assert [offset("shop.refresh", [n], DAY) for n in (7, 8, 9)] == offsets()

    order = Order.objects.create()
    async_to_sync(spread.adelay)(7)
    async_to_sync(spread.abulk)([(8,)])
    async_to_sync(spread.afrom_queryset)(ORDERS, customer_id="pk")
    assert [offset("shop.refresh", [n], DAY) for n in (7, 8, order.pk)] == offsets()


# What is refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "over, words",
    [
        (0, "over is 0; it must be longer than zero"),
        ("0s", "longer than zero"),
        (timedelta(), "longer than zero"),
        (1e-9, "longer than zero"),
        (-1, "longer than zero"),
        (timedelta(microseconds=-1), "longer than zero"),
        (float("nan"), "over=nan: it must be finite"),
        (float("inf"), "over=inf: it must be finite"),
        ("366.001d", "over='366.001d': a window has at most 366 days"),
        (timedelta(days=366, microseconds=1), "at most 366 days"),
        ("11000d", "the longest is 3653 d"),
        ("a day", "no duration: write seconds"),
        (None, "no duration"),
        (True, "no duration"),
    ],
)
def test_a_window_has_limits(over, words, refresh):
    """More than nothing, and a year at most."""
    with pytest.raises(InvalidOption, match=words):
        refresh.spread(over)


@pytest.mark.parametrize("over", [1e-6, "366d", timedelta(days=366)])
def test_the_limits_of_a_window_are_inside(over, refresh):
    """A microsecond, and a year."""
    assert refresh.spread(over).delay(1)


@pytest.mark.parametrize(
    "by, words",
    [
        ("customer", r"by='customer' is no parameter.* Did you mean 'customer_id'\?"),
        ("x", "It takes customer_id, region, lang"),
        (["customer_id", "x"], "by='x' is no parameter"),
        ([7], "by=7 is no parameter"),
        ([], "it must name 1 to 10 parameters, each once"),
        (["region", "region"], "each once"),
        ({"region", "lang"}, "the name of a parameter, or a list of names"),
        ({"region": 1}, "a list of names"),
        (7, "a list of names"),
        (len, "a list of names"),
    ],
)
def test_a_key_names_parameters(by, words, refresh):
    """Each once, in an order; a set has none."""
    with pytest.raises(InvalidOption, match=words):
        refresh.spread("24h", by=by)


def test_a_key_has_up_to_ten_parameters(declared):
    """As that of a fan-out."""

    @task(name="wide")
    def wide(**named):
        pass

    names = list("abcdefghijk")
    wide.spread("24h", by=names[:10]).delay(**dict.fromkeys(names, 1))
    with pytest.raises(InvalidOption, match="1 to 10 parameters"):
        wide.spread("24h", by=names)


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


def test_columns_that_have_no_one_text_are_refused(refresh):
    """By kind, whatever their rows hold."""
    spread = refresh.spread("24h", by="customer_id")

    with CaptureQueriesContext(connection) as queries:
        for field in ("float", "decimal", "datetime", "duration", "time", "binary"):
            with pytest.raises(
                InvalidArgument, match=f"fields.customer_id is '{field}', a .*; spread"
            ):
                spread.from_queryset(EveryField.objects.all(), customer_id=field)
    assert 0 == len(queries)
    assert {"plain", "integer", "date", "uuid"} == set(KEY_KINDS)
    assert set(KEY_KINDS) < set(KINDS.values())


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


def test_a_row_too_large_is_an_error_and_nothing_is_stored(refresh, settings):
    """As without a window."""
    settings.PGQUEUE = {"PAYLOAD_BYTES_MAX": 128}
    Order.objects.create(name="x" * 50)
    spread = refresh.spread("24h", by="customer_id")

    with pytest.raises(PayloadTooLarge, match="a row: arguments take"):
        spread.from_queryset(ORDERS, customer_id=Concat("name", "name", "name"))
    assert 0 == Job.objects.count()
    assert 0 == spread.from_queryset(ORDERS.filter(name="nobody"), customer_id="name")
    assert 0 == spread.from_queryset(ORDERS.none(), customer_id="name")
    assert [] == spread.bulk([])


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


def test_a_text_of_a_key_is_what_the_statement_reads():
    """Of each kind that has one; None: there is none."""
    assert ("7", "true", "x") == (key_text(7), key_text(True), key_text("x"))
    assert None is key_text(7.0)
