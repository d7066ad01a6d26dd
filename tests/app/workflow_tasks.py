"""Sample tasks that are steps of workflows."""

from __future__ import annotations

import threading
from typing import Any

from django_pgqueue import Cancel, Retry, batch_of, task
from django_pgqueue.tasks.context import JobContext
from tests.harness import ledger

SOON = Retry(max_attempts=3, backoff="constant", base=0.0)


@task
def add(left: int, right: int) -> int:
    return left + right


@task
def total(numbers: list[Any]) -> int:
    return sum(numbers)


@task
def give(value: Any = None) -> Any:
    return value


@task
def pair(first: Any, second: Any = None) -> list[Any]:
    return [first, second]


@task(retries=SOON)
def fails(*args: Any) -> None:
    raise ValueError("no way")


@task(retries=0)
def fails_at(value: int, bad: int) -> int:
    if value == bad:
        raise ValueError(f"{value} is bad")
    return value


@task(takes_context=True, retries=SOON)
def fails_twice(ctx: Any, value: Any = None) -> Any:
    if ctx.attempt < 3:
        raise ValueError("not yet")
    return value


@task
def cancels(*args: Any) -> None:
    raise Cancel("enough")


@task(archive=False)
def leaves_nothing(*args: Any) -> int:
    return 1


@task(ack_policy="first")
def acked_first(*args: Any) -> int:
    return 1


SEEN: list[Any] = []


@task
def see(value: Any = None) -> None:
    """Note what it was called with, for tests that run jobs in their own thread."""
    SEEN.append(value)


@task
def _one() -> None:
    """Step of a saga that is put together in a test."""


@task(takes_context=True)
def adds(ctx: Any, depth: int) -> None:
    """Add to its own batch, from inside."""
    own = batch_of(ctx)
    assert own is not None
    if depth:
        own.add_many(adds, [(depth - 1,), {"depth": 0}])
    SEEN.append(depth)


@task(takes_context=True)
def makes_batches(ctx: Any, depth: int) -> None:
    """Store batches in its own, from inside, whose jobs do so as well."""
    own = batch_of(ctx)
    assert own is not None
    if depth:
        for number in range(2):
            with own.batch(f"{ctx.id}-{number}") as part:
                part.add(makes_batches, depth - 1)
    SEEN.append(depth)


@task(takes_context=True)
def passes(ctx: JobContext, value: int) -> int:
    """Write a start, wait for as long as a kill may come, and write an end."""
    ledger.write("start", ctx.id, ctx.attempt, value)
    threading.Event().wait(0.002)
    ledger.write("end", ctx.id, ctx.attempt, value)
    return value + 1
