"""Sample tasks. What they do is seen from outside: in rows, never in memory alone."""

from __future__ import annotations

import inspect
import os
import signal
import threading
from typing import Any

from django_pgqueue import Reject, Retry, RetryLater, Snooze, Unique, task
from django_pgqueue.tasks.context import JobContext
from tests.app.models import Order


class Unlucky(Exception):
    """What a failing sample task raises."""


@task
def noop(*args: Any, **kwargs: Any) -> None:
    """Take anything and do nothing."""


@task
def nothing() -> None:
    """Do nothing, with nothing."""


@task(unique=Unique())
def once() -> None:
    """Do nothing, one job at a time."""


@task
def add(left: int, right: int) -> int:
    """Return a result."""
    return left + right


@task
def make_order(name: str) -> int:
    """Write a row, so that another process can see that it ran."""
    return int(Order.objects.create(name=name).pk)


# Full jitter may draw a moment so near that who drains now meets it again.
@task(retries=Retry(jitter="equal"))
def fails(message: str = "bad luck") -> None:
    """Fail on every attempt."""
    raise Unlucky(message)


@task(retries=0)
def fails_once(message: str = "bad luck") -> None:
    """Fail on the only attempt."""
    raise Unlucky(message)


@task
def rejects(why: str = "never") -> None:
    """Become a dead letter at once."""
    raise Reject(why)


@task
def snoozes(seconds: float = 30) -> None:
    """Ask to run later, without an attempt."""
    raise Snooze(seconds=seconds)


@task
def retries_later(seconds: float = 30) -> None:
    """Ask to run later, for an attempt."""
    raise RetryLater(seconds=seconds)


@task
def returns_unserializable() -> object:
    """Return what JSON cannot hold."""
    return object()


@task(takes_context=True)
def tells_context(ctx: JobContext) -> dict[str, Any]:
    """Return what the task sees of its job."""
    return {
        "id": ctx.id,
        "attempt": ctx.attempt,
        "max_attempts": ctx.max_attempts,
        "queue": ctx.queue,
        "headers": dict(ctx.headers),
        "idempotency_key": ctx.idempotency_key,
    }


@task(takes_context=True, retries=Retry(max_attempts=2, base="0s", jitter="none"))
def writes_a_log(ctx: JobContext, how: str = "return") -> Any:
    """Write two lines, and end in one of several ways."""
    ctx.log("attempt %d, token=%s", ctx.attempt, "s3cret")
    ctx.log("100% done")
    if how == "fail":
        raise ValueError("no luck")
    if how == "snooze":
        raise Snooze("1h")
    return "x" * 70_000 if how == "too large" else None


@task
def runs_for(seconds: float) -> None:
    """Keep a thread busy, as a slow call to somebody's server would."""
    threading.Event().wait(seconds)


@task
def kills_its_process() -> None:
    """Die as by the out-of-memory killer."""
    os.kill(os.getpid(), signal.SIGKILL)


@task(queue="mail", priority=10, retries=2, timeout="60s", settle="batched")
def with_options(order_id: int) -> None:
    """Carry every option."""


@task(aliases=["tests.app.tasks.old_echo"])
def echo(value: Any) -> Any:
    """Return what came, so that a result shows what the task was given."""
    return value


@task
def enqueues_itself(left: int) -> int:
    """Enqueue the next one of *left* more, and tell how deep this call stands."""
    if left:
        enqueues_itself.delay(left - 1)
    return len(inspect.stack(0))
