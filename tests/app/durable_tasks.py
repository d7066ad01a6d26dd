"""Sample tasks with steps that are done once in all attempts of a job."""

from __future__ import annotations

from typing import Any

from django_pgqueue import JobContext, Retry, task
from tests.app.models import Order

LOG: list[Any] = []
FAILS: set[str] = set()
# What the code says, which a test changes between two attempts.
NAMES = {"first": "first", "key": "7"}

LATER = Retry(max_attempts=5, backoff="constant", base=60)


def note(what: str, value: Any = None) -> Any:
    LOG.append(what)
    if what in FAILS:
        raise ValueError(f"{what} fails")
    return value


def write_order(name: str) -> int:
    """Write a row, and fail if the test says so after that."""
    order = Order.objects.create(name=name)
    note("write")
    return order.pk


@task(takes_context=True, retries=LATER)
def steps(ctx: JobContext, value: int) -> int:
    first = ctx.step(NAMES["first"], note, "first", value + 1)
    second = ctx.step("second", note, "second", value=first + 1)
    note("outside")
    return ctx.step("third", note, "third", second + 1)


@task(takes_context=True, retries=LATER)
def writes(ctx: JobContext) -> int:
    ctx.step("write", write_order, "a")
    note("after")
    return ctx.step("last", note, "last", 7)


@task(takes_context=True, retries=LATER)
async def async_steps(ctx: JobContext) -> Any:
    async def fetch(value: int) -> int:
        note("fetch")
        return value

    first = await ctx.astep("fetch", fetch, 1)
    note("outside")
    await ctx.asleep("1h")
    return [first, await ctx.await_for("go", key=1)]


@task(takes_context=True)
def sleeps(ctx: JobContext) -> str:
    ctx.step("before", note, "before")
    ctx.sleep("3d")
    return ctx.step("after", note, "after", "slept")


@task(takes_context=True)
def waits(ctx: JobContext, key: str, timeout: str | None = None) -> Any:
    ctx.step("before", note, "before")
    first = ctx.wait_for("confirmed", key=key, timeout=timeout)
    second = ctx.wait_for("confirmed", key=key, timeout="1h")
    return [first, second]


@task(takes_context=True, atomic=True)
def atomic_steps(ctx: JobContext) -> None:
    ctx.step("one", note, "one")
