"""Schedules of rows that ask for every tick: three by the second, one by the minute."""

from __future__ import annotations

from typing import Any

from django_pgqueue import cron, every, task
from django_pgqueue.tasks.context import JobContext
from tests.faults.workload import SOON, noted, write_effect

# By name, how many seconds apart its ticks are.
PERIODS = {"every second": 1, "jittered": 1, "by the clock": 1, "by the minute": 60}

# Whatever is missed is made up for, a job for each tick.
ALL: dict[str, Any] = {"catch_up": "all(1000)", "overlap": "queue"}


@every(seconds=1, name="every second", **ALL)
@every(seconds=1, name="jittered", jitter="2s", **ALL)
@cron("* * * * * *", name="by the clock", tz="America/New_York", **ALL)
@cron("* * * * *", name="by the minute", tz="Asia/Kathmandu", **ALL)
@task(takes_context=True, retries=SOON)
def tick(ctx: JobContext) -> None:
    """Write a row of the tick that it is of."""
    with noted(ctx) as delivery:
        write_effect(ctx, delivery, str(ctx.tick))
