"""Check types: arguments are what the type hints say, or the job is refused."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal

import pytest
from django.db import connection
from typing_extensions import TypedDict

from django_pgqueue import (
    DeclarationError,
    InvalidArgument,
    TopicError,
    chain,
    task,
    topic,
)
from django_pgqueue.conf import parse
from django_pgqueue.exceptions import SettingsError
from django_pgqueue.models import DeadLetter, Job
from django_pgqueue.tasks import operate
from django_pgqueue.testing import drain
from django_pgqueue.topics import registry as topics

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("declared")]


class Color(Enum):
    RED = "red"


class Line(TypedDict):
    sku: str
    pieces: int


@dataclass
class Address:
    city: str
    password: str = ""


@dataclass
class Parcel:
    id: int
    to: Address
    tags: list[str] = field(default_factory=list)


@pytest.fixture(autouse=True)
def _topics(monkeypatch):
    monkeypatch.setattr(topics, "_declared", {})


def checked(function, **options):
    function.__qualname__ = function.__name__
    return task(check_types=True, **options)(function)


FIT = [
    (int, 1),
    (float, 1),
    (list[float], [1, 2.5]),
    (tuple[int, ...], [1, 2]),
    (Color, Color.RED),
    (Color, "red"),
    (datetime, datetime(2026, 11, 26, 12, tzinfo=UTC)),
    (date, date(2026, 11, 26)),
    (Decimal, Decimal("1.50")),
    (uuid.UUID, uuid.UUID(int=7)),
    (bytes, b"\x00"),
    (Line, {"sku": "a", "pieces": 1}),
    (int | str, "1"),
    (Iterable[int], [1]),
    (Any, ["x", 1]),
]
UNFIT = [
    (int, "1", "is '1', a str; its type hint is int"),
    (int, True, "is True, a bool"),
    (int, 1.0, "is 1.0, a float"),
    (list[int], [1, "2"], r"value\[1\] is '2', a str; that of value type hint"),
    (Color, "blue", "Input should be 'red'"),
    (datetime, "2026-11-26", "its type hint is datetime"),
    (Decimal, 5, "its type hint is"),
    (uuid.UUID, str(uuid.UUID(int=7)), "its type hint is uuid.UUID"),
    (Literal["a", "b"], "c", "Input should be 'a' or 'b'"),
    (Line, {"sku": "a"}, "value.pieces is missing"),
    (Line, {"sku": "a", "pieces": 1, "x": 2}, "value.x is 2"),
    (Address, {"city": "Oslo"}, "a dict; its type hint is"),
]


def taking(hint):
    def take(value): ...

    take.__annotations__ = {"value": hint}
    return checked(take, name="take")


@pytest.mark.parametrize("hint, value", FIT)
def test_what_a_hint_says_is_stored_and_runs(hint, value):
    """As what it is, which the queue's own encoding keeps; the worker says the same."""
    job = taking(hint).delay(value)
    drain()
    assert "succeeded" == job.status


@pytest.mark.parametrize("hint, value, words", UNFIT)
def test_what_it_does_not_say_is_refused_before_sql(hint, value, words):
    """By name, with the value, its type, the hint and the way out."""
    with (
        connection.execute_wrapper(no_sql),
        pytest.raises(InvalidArgument, match=words) as raised,
    ):
        taking(hint).delay(value=value)
    assert str(raised.value).startswith("take: value")
    assert "check_types=False" in str(raised.value)


def no_sql(*args):
    raise AssertionError("SQL was sent")


def test_each_way_in_is_checked():
    """bulk() says which item; steps of a workflow, but for what is filled in later."""

    def send(order_id: int, *more: int, note: str = None, **rest: float): ...  # noqa: RUF013

    send = checked(send, name="send")
    send.delay(1, 2, 3, note=None, x=1.5)
    with pytest.raises(InvalidArgument, match="item 2 order_id is 'x'"):
        send.bulk([[1], {"order_id": 2}, ("x",)])
    with pytest.raises(InvalidArgument, match=r"more\[1\] is 'y'"):
        send.delay(1, 2, "y")
    with pytest.raises(InvalidArgument, match=r"rest\.z is 'y'"):
        send.delay(1, z="y")
    chain(send.si(1), send.s(note="x")).delay()
    with pytest.raises(InvalidArgument, match="note is 5"):
        chain(send.si(1), send.s(note=5)).delay()
    job = Job.objects.earliest("pk")
    with pytest.raises(InvalidArgument, match="order_id is 'x'"):
        operate.edit(job.pk, args=["x"])


def test_a_job_that_sql_has_stored_is_a_dead_letter():
    """Rejected at its first attempt, with the reason; the function is not called."""

    def count(orders: int):
        raise AssertionError

    checked(count, name="count")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pgqueue_enqueue('count', args => '[\"x\"]'),"
            " pgqueue_enqueue('count', kwargs => '{\"other\": 1}')"
        )
    drain()
    dead = DeadLetter.objects.order_by("pk")
    assert ["rejected"] * 2 == [each.reason for each in dead]
    assert [1, 1] == [each.attempt for each in dead]
    first, second = (each.errors[-1]["message"] for each in dead)
    assert "orders is 'x', a str; its type hint is int" in first
    assert "arguments do not fit" in second


def test_secrets_are_not_in_the_error():
    """Neither a parameter's nor one within a value."""

    def log_in(token: int, parts: list[dict[str, int]]): ...

    log_in = checked(log_in, name="log_in")
    for args in (("hush", []), (1, [{"secret": "hush"}]), (1, "secret=hush")):
        with pytest.raises(InvalidArgument) as raised:
            log_in.delay(*args)
        assert "hush" not in str(raised.value)


def test_without_pydantic_it_is_refused_at_once(monkeypatch):
    """With the name of the extra, by the decorator, the settings and the topic."""
    monkeypatch.setattr("django_pgqueue.extras.is_installed", lambda name: False)
    words = r"pydantic is not installed.*\[schema\]"
    with pytest.raises(DeclarationError, match=words):
        taking(int)
    with pytest.raises(SettingsError, match=words):
        parse({"DEFAULTS": {"check_types": True}})
    with pytest.raises(TopicError, match=words):
        topic("parcels", schema=Parcel, check_types=True)


def test_fields_of_a_topics_dataclass_are_checked():
    """With check_types values, too, nested ones by their path; what is stored stays."""
    parcels = topic("parcels", schema=Parcel, check_types=True)
    parcels.publish(Parcel(1, Address("Oslo")))
    parcels.publish({"id": 1, "to": {"city": "Oslo"}, "tags": ["x"]})
    for payload, words in [
        ({"id": "1", "to": {"city": "Oslo"}}, "parcels: .* Parcel: id is '1', a str"),
        ({"id": 1, "to": {"city": 5}}, "to.city is 5"),
        ({"id": 1, "to": {"city": "x", "zip": 5}}, "to.zip is 5"),
        ({"id": 1, "to": {}}, "to.city is missing"),
        ({"id": 1, "to": {"city": "x", "password": 7}}, r"is \[redacted\]"),
        ({"id": 1}, "does not fit Parcel"),
    ]:
        with pytest.raises(TopicError, match=words):
            parcels.publish(payload)
