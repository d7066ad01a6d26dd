"""The tasks that are measured."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import Any

from django_pgqueue import Limit, consume, task, topic
from django_pgqueue.tasks.context import JobContext

# Of jobs in lanes.
KEYS, AT_A_TIME = 1_000, 5

# How long tasks take: a long one; one that is waited for, at random, so that no look
# falls into step with it; one between two words of a language model; an async one.
LONG_SECONDS = 0.1
WAITED_SECONDS = 0.1, 0.4
WORD_SECONDS = 0.03
ASYNC_SECONDS = 0.01

TOPIC = "pgqueue_bench"
LOG = topic(TOPIC)
READERS, BATCH = 4, 500

# A variable of a worker's environment: it reads the topic.
READS = "BENCHMARK_READS"


def key_of(order_id: int, note: str) -> int:
    """Return the key of a job: those of one key are spread over the queue."""
    return order_id % KEYS


def nothing(order_id: int, note: str) -> None:
    """Do nothing."""


def tells_time(order_id: int, note: str) -> float:
    """Return when it started, by the monotonic clock of the machine."""
    return time.monotonic()


def _task(function: Any, name: str, **options: Any) -> Any:
    return task(name=f"measures.{name}", **options)(function)


batched = _task(nothing, "batched", settle="batched")
immediate = _task(nothing, "immediate", settle="immediate")
not_archived = _task(nothing, "not_archived", settle="batched", archive=False)
in_order = _task(nothing, "in_order", settle="batched", group=key_of)
limited = _task(
    nothing, "limited", settle="batched", limit=Limit(AT_A_TIME, key=key_of)
)
fair = _task(nothing, "fair", settle="batched", fair_by=lambda order_id, note: 0)
timed = _task(tells_time, "timed", settle="immediate")
# Each job of these has a key of its own.
timed_in_lane = _task(tells_time, "timed_in_lane", settle="immediate", group="order_id")
timed_in_turn = _task(
    tells_time, "timed_in_turn", settle="immediate", fair_by="order_id"
)


@task(settle="immediate", name="measures.tells_end")
def tells_end(order_id: int, note: str) -> float:
    """Wait a while, and return when it ended, by the same clock."""
    time.sleep(random.uniform(*WAITED_SECONDS))
    return time.monotonic()


@task(settle="immediate", takes_context=True, name="measures.emits_times")
def emits_times(ctx: JobContext, values: int) -> None:
    """Emit so many times the time, by the same clock, as often as a model a word."""
    for _ in range(values):
        time.sleep(random.uniform(0.0, 2 * WORD_SECONDS))
        ctx.emit(time.monotonic())


@task(settle="immediate", name="measures.long")
def long(order_id: int, note: str) -> None:
    """Wait, as a task does for a server elsewhere."""
    time.sleep(LONG_SECONDS)


@task(settle="batched", name="measures.waits")
async def waits(order_id: int, note: str) -> None:
    """Wait, as a task does for a server elsewhere; the slot is free at once."""
    await asyncio.sleep(ASYNC_SECONDS)


if READS in os.environ:

    @consume(LOG, group="bench", batch=BATCH, readers=READERS, name="measures.reads")
    def reads(messages: list[Any]) -> None:
        """Do nothing with messages that are there as Python values."""
