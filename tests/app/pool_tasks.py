"""Sample tasks that leak, and that hang whatever their timeout is."""

from __future__ import annotations

import ctypes
import time

from django_pgqueue import Retry, task
from django_pgqueue.tasks.context import JobContext
from tests.harness import ledger

ONCE = Retry(max_attempts=1)
MEBIBYTE = 1_048_576

_kept: list[bytearray] = []


@task(takes_context=True)
def leaks(ctx: JobContext, mebibytes: int) -> None:
    """Keep so much memory for as long as the process lives."""
    ledger.write("start", ctx.id, ctx.attempt)
    # Not zeros: pages that nobody wrote to take no memory.
    _kept.append(bytearray(b"x" * (mebibytes * MEBIBYTE)))


@task(takes_context=True, timeout=0.3, retries=ONCE)
def stubborn(ctx: JobContext) -> None:
    """Run on, whatever is raised in here."""
    ledger.write("start", ctx.id, ctx.attempt)
    while True:
        try:
            time.sleep(0.05)
        except BaseException as error:
            ledger.write("deaf", ctx.id, note=type(error).__name__)


@task(takes_context=True, timeout=0.3, retries=ONCE)
def keeps_the_lock(ctx: JobContext) -> None:
    """Keep the interpreter's lock for an hour, as code in C may."""
    ledger.write("start", ctx.id, ctx.attempt)
    ctypes.PyDLL(None).sleep(3_600)
