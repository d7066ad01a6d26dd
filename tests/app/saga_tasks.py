"""A sample saga, whose steps fail as they are told."""

from __future__ import annotations

from typing import Any

from django_pgqueue import Cancel, Reject, Retry, saga, task

LOG: list[Any] = []
# Names of what fails, and how often; -1: always.
FAILS: dict[str, int] = {}
REJECTS: set[str] = set()
CANCELS: set[str] = set()

AT_ONCE = Retry(max_attempts=2, backoff="constant", base=0.0)
OFTEN = Retry(max_attempts=100, backoff="constant", base=0.0)


def _do(name: str, *said: Any) -> None:
    if name in REJECTS:
        raise Reject("never")
    if FAILS.get(name):
        FAILS[name] -= FAILS[name] > 0
        raise ValueError(f"{name} fails")
    LOG.append((name, *said))


order = saga("place-order")


@order.step(compensate="release", retries=AT_ONCE)
def reserve(order_id: int) -> str:
    _do("reserve", order_id)
    return f"stock-{order_id}"


@order.compensation(retries=OFTEN)
def release(order_id: int, reserve: str) -> None:
    _do("release", order_id, reserve)


@order.step(compensate="refund", retries=AT_ONCE)
def charge(order_id: int, amount: int) -> str:
    _do("charge", order_id, amount)
    return f"charge-{order_id}"


@order.compensation(retries=OFTEN)
def refund(order_id: int, charge: str, reserve: str) -> None:
    _do("refund", order_id, charge, reserve)


@order.step(retries=AT_ONCE)
def ship(order_id: int, charge: str) -> str:
    if "ship" in CANCELS:
        raise Cancel("not today")
    _do("ship", order_id, charge)
    return "shipped"


later = saga("later")


@later.step(compensate="undo", retries=AT_ONCE)
def do() -> None:
    _do("do")


@later.compensation(not_before="15m")
def undo() -> None:
    _do("undo")


@later.step(retries=AT_ONCE)
def then() -> None:
    _do("then")


# What the compensation is given is larger than each of its parts.
large = saga("large")


@large.step(retries=AT_ONCE)
def first(size: int) -> str:
    return "a" * size


@large.step(compensate="undo_both", retries=AT_ONCE)
def second(size: int) -> str:
    return "b" * size


@large.compensation(retries=OFTEN)
def undo_both(first: str, second: str) -> None:
    _do("undo_both")


@large.step(retries=AT_ONCE)
def third() -> None:
    raise ValueError("third fails")


@task(ack_policy="first")
def acked_first() -> None:
    raise ValueError("nobody hears of it")
