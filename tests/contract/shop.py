"""A shop: topics and tasks of each kind, declared once a test asks for them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import pydantic
from typing_extensions import TypedDict

from django_pgqueue import Accumulate, Message, consume, cron, subscribe, task, topic
from tests.app.models import Order


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Line(TypedDict):
    sku: str
    pieces: int


@dataclass
class Address:
    city: str
    since: datetime | None = None


@dataclass
class OrderEvent:
    id: int
    to: Address
    price: Decimal
    tags: list[str] = field(default_factory=list)


class Payment(pydantic.BaseModel):
    id: uuid.UUID
    lines: list[Line] = []
    at: datetime


EVERY_KIND = {
    "number": 1,
    "ratio": 0.5,
    "color": Color.RED,
    "lines": [{"sku": "a", "pieces": 1}],
    "at": datetime(2026, 11, 26, 12, tzinfo=UTC),
    "day": date(2026, 11, 26),
    "hour": time(12),
    "wait": timedelta(days=1, microseconds=5),
    "price": Decimal("1.50"),
    "key": uuid.UUID(int=7),
    "raw": b"\x00\x01",
    "pair": (1, "x"),
    "either": None,
    "message": Message(7, "orders", "orders", {}),
}


def take_every_kind(
    number: int,
    ratio: float,
    color: Color,
    lines: list[Line],
    at: datetime,
    day: date,
    hour: time,
    wait: timedelta,
    price: Decimal,
    key: uuid.UUID,
    raw: bytes,
    pair: tuple[int, str],
    either: int | None,
    message: Message,
    order: Order = None,
    anything: Any = 1,
    **more: int,
) -> None:
    """
    Take a value of every kind.

    And no more.
    """


def send(order_id: int) -> None: ...


def on_order(message: Message) -> None: ...


def count(messages: list[Message]) -> None: ...


def gather(calls: list[Any]) -> None: ...


def open_shop():
    """Declare all of it; in which order says nothing."""
    orders = topic("orders", schema=OrderEvent, partitions=4, retain="2d")
    topic("payments", schema=Payment)
    task(name="shop.take", queue="mail", aliases=["shop.old"])(take_every_kind)
    task(name="shop/send~ it")(send)
    task(name="shop.gather", accumulate=Accumulate(size=5, within="1s"))(gather)
    subscribe("orders.created", name="shop.on_order", queue="billing")(on_order)
    subscribe("*.failed", name="shop.on_failure")(on_order)
    consume("clicks", group="stats", name="shop.count")(count)
    cron("0 3 * * *", tz="UTC", name="nightly")(
        orders.message("orders.nightly", OrderEvent(1, Address("x"), Decimal(1)))
    )
