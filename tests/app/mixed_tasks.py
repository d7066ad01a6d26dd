"""Sample tasks whose jobs are short or long: their arguments decide, or the task."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from django_pgqueue import task
from django_pgqueue.tasks.context import JobContext
from tests.harness import ledger
from tests.harness.waiting import wait_for

GATE_SECONDS_MAX = 60.0


def _run(ctx: JobContext, gate: str | None, seconds: float) -> None:
    ledger.write("start", ctx.id, ctx.attempt)
    if gate is not None:
        # Opened for all processes, or for this one alone.
        gates = [Path(gate), Path(f"{gate}.{os.getpid()}")]
        wait_for(
            lambda: any(path.exists() for path in gates),
            GATE_SECONDS_MAX,
            "the gate opens",
        )
        ledger.write("end", ctx.id, ctx.attempt)
    elif seconds:
        threading.Event().wait(seconds)


@task(takes_context=True)
def mixed(ctx: JobContext, gate: str | None = None, seconds: float = 0) -> None:
    """Return at once; after *seconds*; or when the test makes the file *gate*."""
    _run(ctx, gate, seconds)


@task(takes_context=True, settle="batched")
def mixed_batched(ctx: JobContext, gate: str | None = None, seconds: float = 0) -> None:
    """As ``mixed``, and the thread goes on before the ack is committed."""
    _run(ctx, gate, seconds)


@task(takes_context=True)
def other(ctx: JobContext, gate: str) -> None:
    """Another task beside them, and always a long one."""
    _run(ctx, gate, 0)
