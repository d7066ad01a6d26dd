"""Sample tasks that take many calls in one run."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

from django_pgqueue import Accumulate, Call, Retry, task
from django_pgqueue.tasks.context import JobContext
from tests.app.models import Order
from tests.harness import ledger
from tests.harness.waiting import wait_for

SOON = Retry(max_attempts=3, backoff="constant", base=0.05, jitter="full")

GATE_SECONDS_MAX = 60.0


def _record(calls: list[Call]) -> None:
    """Write what a run got: a line for it, with its calls."""
    note = [[call.id, *call.args, call.kwargs, call.attempt] for call in calls]
    ledger.write("run", calls[0].id, calls[0].attempt, note)


@task(accumulate=Accumulate(size=10, within="1h"))
def by_size(calls: list[Call]) -> int:
    """Run when there are ten."""
    _record(calls)
    return len(calls)


@task(accumulate=Accumulate(size=1_000, within=0.3))
def by_time(calls: list[Call]) -> None:
    """Run after a moment."""
    _record(calls)


@task(accumulate=Accumulate(size=10, within="1h"), queue="async", takes_context=True)
async def by_size_async(ctx: JobContext, calls: list[Call], /) -> None:
    """Run when there are ten, in the event loop."""
    _record(calls)
    await asyncio.sleep(0)


@task(accumulate=Accumulate(size=10, within="1h"), retries=SOON)
def fails(calls: list[Call]) -> None:
    """Fail, three times in all."""
    _record(calls)
    raise ValueError("a run that always fails")


def _through(gate: str) -> None:
    """Wait until the test makes the file *gate*."""
    wait_for(Path(gate).exists, GATE_SECONDS_MAX, "the gate opens")


@task(accumulate=Accumulate(size=10, within="1h"), takes_context=True, retries=SOON)
def through_gate(ctx: JobContext, calls: list[Call]) -> None:
    """Wait for the gate that the first call names; then fail if it says so."""
    _record(calls)
    _through(calls[0].kwargs["gate"])
    if calls[0].kwargs.get("fails"):
        raise ValueError("after the gate")


@task(accumulate=Accumulate(size=3, within="1h"), timeout=0.3, retries=0)
def stuck(calls: list[Call]) -> None:
    """Run longer than the timeout, in a recv() that hears of no exception."""
    _record(calls)
    left, right = socket.socketpair()
    with left, right:
        left.recv(1)


@task(accumulate=Accumulate(size=3, within="10s"))
def makes_orders(calls: list[Call]) -> list[Any]:
    """Write a row for all, so that a test without workers sees it."""
    Order.objects.create(name=",".join(str(call.args[0]) for call in calls))
    return [call.args[0] for call in calls]
