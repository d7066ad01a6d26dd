"""A sample task that hangs whatever its timeout is."""

from __future__ import annotations

import ctypes

from django_pgqueue import Retry, task
from django_pgqueue.tasks.context import JobContext
from tests.harness import ledger

ONCE = Retry(max_attempts=1)


@task(takes_context=True, timeout=0.3, retries=ONCE)
def keeps_the_lock(ctx: JobContext) -> None:
    """Keep the interpreter's lock for an hour, as code in C may."""
    ledger.write("start", ctx.id, ctx.attempt)
    ctypes.PyDLL(None).sleep(3_600)
