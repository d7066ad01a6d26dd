"""Sample tasks whose keys take turns."""

from __future__ import annotations

import time

from django_pgqueue import Retry, task
from django_pgqueue.tasks.context import JobContext
from tests.harness import ledger


@task(fair_by="tenant", takes_context=True)
def shared(ctx: JobContext, tenant: str | None, seconds: float) -> None:
    """Take so long."""
    ledger.write("start", ctx.id, ctx.attempt, tenant)
    time.sleep(seconds)


@task(
    fair_by="tenant",
    takes_context=True,
    retries=Retry(max_attempts=2, backoff="constant", base=0.1, jitter="none"),
)
def fails_once(ctx: JobContext, tenant: str) -> None:
    """Fail at the first attempt."""
    if ctx.attempt == 1:
        raise RuntimeError("bad luck")
