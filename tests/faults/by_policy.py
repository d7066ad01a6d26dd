"""Schedules of rows in which nobody is there for a while: one of each policy."""

from __future__ import annotations

import time

from django_pgqueue import cron, every, task
from django_pgqueue.tasks.context import JobContext
from tests.faults.workload import SOON, noted, write_effect

PERIODS = {"skip": 1, "one": 1, "four": 1, "all": 1, "no overlap": 1, "slow": 3}

# Longer than two ticks of "no overlap".
SLOW_SECONDS = 2.5


@every(seconds=1, name="skip", catch_up="skip", overlap="queue")
@every(seconds=1, name="one", catch_up="one", overlap="queue")
@cron("* * * * * *", name="four", tz="UTC", catch_up="all(4)", overlap="queue")
@every(seconds=1, name="all", catch_up="all(1000)", overlap="queue")
@cron("*/3 * * * * *", name="slow", tz="Europe/Berlin", catch_up="skip")
@task(takes_context=True, retries=SOON)
def quick(ctx: JobContext) -> None:
    """Write a row of the tick that it is of."""
    with noted(ctx) as delivery:
        write_effect(ctx, delivery, str(ctx.tick))


@every(seconds=1, name="no overlap", catch_up="one", overlap="skip")
@task(takes_context=True, retries=SOON)
def slow(ctx: JobContext) -> None:
    """As ``quick``, while ticks of the same schedule come and are skipped."""
    with noted(ctx) as delivery:
        time.sleep(SLOW_SECONDS)
        write_effect(ctx, delivery, str(ctx.tick))
