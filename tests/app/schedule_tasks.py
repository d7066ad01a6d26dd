"""Sample tasks with schedules; of workers whose TASK_MODULES names this module."""

from __future__ import annotations

from django_pgqueue import cron, every, task
from django_pgqueue.tasks.context import JobContext
from tests.harness import ledger


@every(seconds=1, name="each second", catch_up="all(1000)", overlap="queue")
@cron("0 3 * * *", name="each night")
@task(takes_context=True)
def tells_tick(ctx: JobContext) -> None:
    """Note which tick it is of."""
    ledger.write("tick", ctx.id, note=str(ctx.tick))
