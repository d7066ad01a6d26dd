"""Sample tasks whose keys take turns."""

from __future__ import annotations

import time

from django_pgqueue import task
from django_pgqueue.tasks.context import JobContext
from tests.harness import ledger


@task(fair_by="tenant", takes_context=True)
def shared(ctx: JobContext, tenant: str | None, seconds: float) -> None:
    """Take so long."""
    ledger.write("start", ctx.id, ctx.attempt, tenant)
    time.sleep(seconds)
