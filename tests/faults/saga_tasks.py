"""
Saga tasks: what the rows of sagas run. Each step and each compensation writes a row.

Plain ones and atomic ones take turns, and so do those that undo them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from django_pgqueue import Reject, Retry
from django_pgqueue import saga as new_saga
from django_pgqueue.tasks.context import JobContext
from tests.faults import ledger
from tests.faults.capacities import RELUCTANT_TIMES
from tests.faults.instrument import pass_point
from tests.faults.workload import Planned, noted, write_effect

THRICE = Retry(max_attempts=3, backoff="constant", base=0.1, jitter="full")
OFTEN = Retry(max_attempts=1_000, backoff="constant", base=0.2, jitter="full")

STEP: dict[str, Any] = {"takes_context": True, "retries": THRICE}
UNDO: dict[str, Any] = {"takes_context": True, "retries": OFTEN}

order = new_saga("order")


def do(ctx: JobContext, saga: str, how: str, seconds: float, step: str) -> str:
    """Write the row of a step, or fail before that, whatever the attempt."""
    with noted(ctx) as delivery:
        pass_point("running")
        time.sleep(seconds)
        if how.partition(" ")[0] == step:
            raise Planned(step)
        write_effect(ctx, delivery, f"{saga}/{step}")
    return f"{saga}/{step}"


def undo(ctx: JobContext, saga: str, how: str, seconds: float, done: str) -> None:
    """Write the row that undoes a step, once this saga lets it."""
    with noted(ctx) as delivery:
        pass_point("running")
        time.sleep(seconds)
        mood = how.partition(" ")[2]
        if mood == "reluctant" and ctx.attempt <= RELUCTANT_TIMES:
            raise Planned(f"attempt {ctx.attempt}")
        if mood == "stubborn" and not people_came().exists():
            raise Reject("as planned")
        assert done.startswith(f"{saga}/"), f"{saga} was to undo {done}"
        write_effect(ctx, delivery, f"{done} undone")


def people_came() -> Path:
    """Return the file that is there once people have mended what is rejected."""
    return Path(os.environ[ledger.FOLDER]) / "people.came"


@order.step(compensate="release", **STEP)
def reserve(ctx: JobContext, saga: str, how: str, seconds: float) -> str:
    """Plain; undone in a transaction."""
    return do(ctx, saga, how, seconds, "reserve")


@order.compensation(atomic=True, **UNDO)
def release(ctx: JobContext, saga: str, how: str, seconds: float, reserve: str) -> None:
    """Undo reserve."""
    undo(ctx, saga, how, seconds, reserve)


@order.step(compensate="refund", atomic=True, **STEP)
def charge(ctx: JobContext, saga: str, how: str, seconds: float, reserve: str) -> str:
    """In a transaction; undone plainly."""
    assert reserve == f"{saga}/reserve", f"{saga} was given {reserve}"
    return do(ctx, saga, how, seconds, "charge")


@order.compensation(**UNDO)
def refund(ctx: JobContext, saga: str, how: str, seconds: float, charge: str) -> None:
    """Undo charge."""
    undo(ctx, saga, how, seconds, charge)


@order.step(compensate="unpack", **STEP)
def pack(ctx: JobContext, saga: str, how: str, seconds: float) -> str:
    """Plain; undone in a transaction."""
    return do(ctx, saga, how, seconds, "pack")


@order.compensation(atomic=True, **UNDO)
def unpack(ctx: JobContext, saga: str, how: str, seconds: float, pack: str) -> None:
    """Undo pack."""
    undo(ctx, saga, how, seconds, pack)


@order.step(atomic=True, **STEP)
def ship(ctx: JobContext, saga: str, how: str, seconds: float, charge: str) -> str:
    """In a transaction, and never undone."""
    assert charge == f"{saga}/charge", f"{saga} was given {charge}"
    return do(ctx, saga, how, seconds, "ship")
