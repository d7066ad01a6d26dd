"""Sample tasks that write to the ledger, and some that end their process."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

from django_pgqueue import Reject, Retry, RetryLater, Snooze, task
from django_pgqueue.tasks.context import JobContext
from tests.app.models import Order
from tests.crashes import failpoints
from tests.harness import ledger
from tests.harness.waiting import wait_for

GATE_SECONDS_MAX = 60.0

SOON = Retry(max_attempts=3, backoff="constant", base=0.05, jitter="none")


def _pass(gate: str) -> None:
    """Wait until the test opens the gate, for all or for this process alone."""
    ours = Path(f"{gate}.{os.getpid()}")
    wait_for(
        lambda: Path(gate).exists() or ours.exists(), GATE_SECONDS_MAX, "the gate opens"
    )


def _record(ctx: JobContext, note: Any = None) -> None:
    ledger.write("start", ctx.id, ctx.attempt, note)
    failpoints.fire("running")
    ledger.write("end", ctx.id, ctx.attempt, note)


@task(takes_context=True)
def record(ctx: JobContext, note: Any = None) -> Any:
    """Write a start and an end."""
    _record(ctx, note)
    return note


@task(takes_context=True)
def record_slowly(ctx: JobContext, note: Any = None, seconds: float = 0.005) -> None:
    """Write a start, wait, and write an end."""
    ledger.write("start", ctx.id, ctx.attempt, note)
    threading.Event().wait(seconds)
    ledger.write("end", ctx.id, ctx.attempt, note)


@task(takes_context=True, settle="batched")
def record_batched(ctx: JobContext, note: Any = None) -> None:
    """Write a start and an end; the thread goes on before the ack is committed."""
    _record(ctx, note)


@task(takes_context=True)
def record_through_gate(ctx: JobContext, gate: str) -> None:
    """Write a start, wait until the test makes the file *gate*, write an end."""
    ledger.write("start", ctx.id, ctx.attempt)
    _pass(gate)
    ledger.write("end", ctx.id, ctx.attempt)


@task(takes_context=True, retries=SOON)
def fail_recorded(ctx: JobContext, gate: str | None = None) -> None:
    """Write a start and fail, three times in all."""
    ledger.write("start", ctx.id, ctx.attempt)
    if gate is not None:
        _pass(gate)
    raise ValueError(f"attempt {ctx.attempt} of a job that always fails")


@task(takes_context=True)
def later(ctx: JobContext, how: str, times: int) -> None:
    """Ask to run later, until this was started more than *times* times."""
    ledger.write("start", ctx.id, ctx.attempt)
    path = Path(os.environ[ledger.PATH])
    if ledger.Ledger(path).starts()[ctx.id] <= times:
        raise {"snooze": Snooze, "retry": RetryLater}[how](seconds=0.05)


@task(takes_context=True)
def reject_recorded(ctx: JobContext, why: str) -> None:
    """Write a start and give up for good."""
    ledger.write("start", ctx.id, ctx.attempt)
    raise Reject(why)


@task(takes_context=True)
def poison(ctx: JobContext, how: str, gate: str | None = None) -> None:
    """End the process under the task, in one of several ways."""
    ledger.write("start", ctx.id, ctx.attempt)
    if gate is not None:
        _pass(gate)
    if how == "exit":
        os._exit(7)
    if how == "clean":
        os._exit(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segfault":
        ctypes.string_at(0)


@task(takes_context=True, timeout=0.3, retries=0)
def stuck(ctx: JobContext) -> None:
    """Run longer than the timeout, in a recv() that hears of no exception."""
    ledger.write("start", ctx.id, ctx.attempt)
    left, right = socket.socketpair()
    with left, right:
        left.recv(1)


@task(takes_context=True)
def takes_order(ctx: JobContext, order: Order) -> None:
    """Take a model instance."""
    ledger.write("start", ctx.id, ctx.attempt, order.name)
