"""Payload: arguments to JSON and back, exactly, or refused before any SQL."""

from __future__ import annotations

import enum
import json
from collections import defaultdict, namedtuple
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.utils.safestring import mark_safe
from hypothesis import given
from hypothesis import strategies as st

from django_pgqueue import InvalidArgument, PayloadTooLarge, Reject, UndecodablePayload
from django_pgqueue.tasks.payload import (
    TAG,
    decode,
    encode,
)
from tests.app.models import Order
from tests.app.tasks import noop
from tests.harness.factories import make_job

MEBIBYTE = 1_048_576
BERLIN = ZoneInfo("Europe/Berlin")


def written(*args, **kwargs):
    return encode("shop.send", args, kwargs, payload_bytes_max=MEBIBYTE)


def again(value):
    """Return *value* as the task gets it."""
    ((got,), _) = decode(*written(value))
    return got


def exactly(value):
    """Return *value* with the types of all its parts, so that 1 is not True."""
    if isinstance(value, list):
        return [exactly(item) for item in value]
    if isinstance(value, dict):
        return {key: exactly(item) for key, item in value.items()}
    return type(value), repr(value)


def plain(value):
    """Return *value*, with its offset from UTC in place of its zone."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.replace(tzinfo=timezone(value.utcoffset()), fold=0)
    return value


# Characters that PostgreSQL stores: neither NUL nor half a surrogate pair.
TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
TAGGED = (
    # A fold says something only where a zone knows of it.
    st.datetimes().map(lambda value: value.replace(fold=0))
    | st.datetimes(
        timezones=st.integers(-86_000, 86_000).map(
            lambda seconds: timezone(timedelta(seconds=seconds))
        )
    ).map(lambda value: value.replace(fold=0))
    | st.dates()
    | st.times().map(lambda value: value.replace(fold=0))
    | st.timedeltas()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.uuids()
    | st.binary()
)
KEYS = TEXT.filter(lambda key: key != TAG)


def nested(leaves):
    return st.recursive(
        leaves, lambda item: st.lists(item) | st.dictionaries(KEYS, item)
    )


# What comes back ---------------------------------------------------------------------


@given(nested(SCALARS | TAGGED))
def test_every_value_comes_back_as_it_went(value):
    """The same types and the same values, however deep."""
    assert exactly(value) == exactly(again(value))


@pytest.mark.django_db
@pytest.mark.parametrize(
    "value",
    [
        10**4_000,
        5e-324,
        "\x01\x1f\x7f\u2028 %s \\u0000 '; DROP TABLE pgqueue_job; --",
        {"a.b": 1, "": 2, "😀": 3, "'": 4},
        Decimal("1E+999999"),
        datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
        datetime(1, 1, 1, tzinfo=UTC),
        time(12, 30, tzinfo=UTC),
        timedelta.min,
        b"\x00\xff",
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_value_survives_the_database(value):
    """Stored as jsonb and read back as text, it is the same value."""
    result = noop.delay(value, key=value)

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT args::text, kwargs::text FROM pgqueue_job WHERE id = %s",
            [result.id],
        )
        (got,), named = decode(*cursor.fetchone())
    # In another way than ==: a datetime at a fold equals nothing of another zone.
    assert exactly(plain(value)) == exactly(got) == exactly(named["key"])


class Colour(str, enum.Enum):  # noqa: UP042
    """Text with a name."""

    RED = "red"


class Level(enum.IntEnum):
    """A number with a name."""

    HIGH = 3


class Opaque(enum.Enum):
    """A name for what cannot travel."""

    PAIR = (1, 2)


Point = namedtuple("Point", "x y")


class Half(float):
    """A float of a library's own."""


@pytest.mark.parametrize(
    "value, expected",
    [
        ((1, (2,)), [1, [2]]),
        (Point(1, 2), [1, 2]),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (mark_safe("<b>"), "<b>"),
        (Half(0.5), 0.5),
    ],
    ids=repr,
)
def test_subclasses_arrive_as_what_json_has(value, expected):
    """A tuple as a list, a member of an Enum as its value."""
    assert exactly(expected) == exactly(again(value))


# Model instances ---------------------------------------------------------------------


@pytest.mark.django_db
def test_a_model_instance_is_stored_as_its_key_and_fetched_at_run_time():
    """What the task gets is the row as it is then."""
    order = Order.objects.create(name="before")
    args, kwargs = written(order, [order])
    Order.objects.update(name="after")

    (first, (second,)), _ = decode(args, kwargs)

    assert [
        {TAG: "model", "value": "testapp.order", "pk": order.pk, "db": "default"},
    ] == json.loads(args)[:1]
    assert (order, "after") == (first, first.name)
    assert order == second


@pytest.mark.django_db(databases=["default", "queue"])
def test_a_model_instance_is_fetched_from_where_it_was():
    """Two rows with one key, in two databases."""
    here = make_job(using="default", queue="here")
    there = make_job(using="queue", queue="there", id=here.pk)

    (first, second), _ = decode(*written(here, there))

    assert ("default", "here") == (first._state.db, first.queue)
    assert ("queue", "there") == (second._state.db, second.queue)


@pytest.mark.django_db
def test_a_model_instance_that_is_gone_rejects_the_job():
    """Nothing that could come later would bring it back."""
    order = Order.objects.create(name="x")
    payload = written(order)
    pk = order.pk
    order.delete()

    with pytest.raises(Reject, match=f"testapp.order with primary key {pk} is gone"):
        decode(*payload)


# What is refused ---------------------------------------------------------------------


class Unprintable:
    """Raises whatever it is asked."""

    def __repr__(self):
        raise ZeroDivisionError

    __str__ = __repr__


@pytest.mark.parametrize(
    "value, problem",
    [
        (float("nan"), "is nan, which JSON cannot hold"),
        ("a\x00b", "holds a NUL character"),
        ("\ud800", "holds a lone surrogate"),
        ({"a\x00": 1}, "holds a NUL character"),
        ({1: "a", "1": "b"}, "has the key 1; JSON keys are text"),
        ({TAG: "model"}, f"has the key '{TAG}', which is reserved"),
        (10**5_000, "has more than 4,300 digits"),
        (Decimal("NaN"), "is NaN, which is no number"),
        (time(12, tzinfo=BERLIN), "its offset depends on the date"),
        (Opaque.PAIR, "is <Opaque.PAIR.*an Enum without a str or int value"),
        ({1, 2}, "is a builtins.set, which cannot be stored"),
        (Unprintable(), r"is a .*Unprintable, which cannot be stored"),
        ((n for n in ()), "is a builtins.generator"),
        (Order, "which cannot be stored"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_what_cannot_travel_is_refused_with_its_path(value, problem):
    """Wherever it is; nothing else is raised on the way."""
    with pytest.raises(InvalidArgument, match=r"^shop\.send: args\[0\].* ?" + problem):
        written(value)
    with pytest.raises(
        InvalidArgument, match=r"kwargs\.a\[1\]\['b c'\]\.d.*" + problem
    ):
        written(a=[0, {"b c": {"d": value}}])


def deep(levels, leaf=0):
    """Return lists within lists, *levels* of them."""
    value = leaf
    for _ in range(levels):
        value = [value]
    return value


def test_the_limit_counts_bytes_not_characters():
    """Of args and kwargs together, as UTF-8; the limit itself is allowed."""
    args, kwargs = '["ä"]', '{"k":"😀"}'
    size = len((args + kwargs).encode())

    assert (args, kwargs) == encode("t", ["ä"], {"k": "😀"}, payload_bytes_max=size)
    with pytest.raises(
        PayloadTooLarge, match=f"t: arguments take {size} bytes.*{size - 1}"
    ) as caught:
        encode("t", ["ä"], {"k": "😀"}, payload_bytes_max=size - 1)
    assert (size, size - 1) == (
        caught.value.payload_bytes,
        caught.value.payload_bytes_max,
    )


# Reading -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args, kwargs, message",
    [
        ("{}", "{}", "args must be a JSON array.*not dict and dict"),
        ("[]", "[]", "kwargs a JSON object, not list and list"),
        ("[1" + "0" * 5_000 + "]", "{}", "stored JSON cannot be read"),
        ("[{", "{}", "stored JSON cannot be read"),
        ('[{"__pgqueue__": "pickle", "value": ""}]', "{}", "unknown type 'pickle'"),
        ('[{"__pgqueue__": "uuid"}]', "{}", "stored uuid cannot be read"),
        ('[{"__pgqueue__": "timedelta", "value": [1]}]', "{}", "stored timedelta"),
        (
            '[{"__pgqueue__": "model", "value": "no.such", "pk": 1, "db": "default"}]',
            "{}",
            "stored model cannot be read",
        ),
        ('[{"__pgqueue__": ["x"]}]', "{}", "cannot be read|unknown type"),
    ],
    ids=lambda value: value[:30],
)
def test_a_row_that_cannot_be_read_says_why(args, kwargs, message):
    """One error for all of them, so that the job alone is dead."""
    with pytest.raises(UndecodablePayload, match=message):
        decode(args, kwargs)
