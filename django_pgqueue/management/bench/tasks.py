"""The tasks that are measured. Imported by the benchmark and by its workers alone."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from django_pgqueue.options.lanes import Limit
from django_pgqueue.tasks.context import JobContext
from django_pgqueue.tasks.declare import task
from django_pgqueue.workflows.saga import saga

# With it, the arguments of a job take about 100 bytes as JSON.
NOTE = "x" * 72

# How long a long job takes.
LONG_SECONDS = 0.1

# How long a job takes for which somebody waits: random, so that no look falls into step
# with it.
WAITED_SECONDS_MIN, WAITED_SECONDS_MAX = 0.1, 0.4

# Between two words of a language model, about.
WORD_SECONDS = 0.03

# How long an async job waits.
WAIT_SECONDS = 0.01

# Of jobs in lanes.
KEYS, AT_A_TIME = 1_000, 5


def key_of(order_id: int, note: str) -> int:
    """Return the key of a job: those of one key are spread over the queue."""
    return order_id % KEYS


@task(settle="batched", name="pgqueue_bench.batched")
def batched(order_id: int, note: str) -> None:
    """Do nothing; the thread goes on while the ack is written."""


@task(settle="immediate", name="pgqueue_bench.immediate")
def immediate(order_id: int, note: str) -> None:
    """Do nothing; the thread waits for its ack."""


@task(settle="batched", group=key_of, name="pgqueue_bench.in_order")
def in_order(order_id: int, note: str) -> None:
    """Do nothing, one at a time for each key."""


@task(
    settle="batched",
    limit=Limit(AT_A_TIME, key=key_of),
    name="pgqueue_bench.limited",
)
def limited(order_id: int, note: str) -> None:
    """Do nothing, so many at a time for each key."""


@task(settle="batched", fair_by=lambda order_id, note: 0, name="pgqueue_bench.fair")
def fair(order_id: int, note: str) -> None:
    """Do nothing; all are of one key, which takes turns with others."""


@task(settle="immediate", name="pgqueue_bench.tells_time")
def tells_time(order_id: int, note: str) -> float:
    """Return when it started: the monotonic clock of the machine."""
    return time.monotonic()


@task(settle="immediate", group="order_id", name="pgqueue_bench.tells_time_of_key")
def tells_time_of_key(order_id: int, note: str) -> float:
    """Return the same; each job has a key of its own."""
    return time.monotonic()


@task(settle="immediate", fair_by="order_id", name="pgqueue_bench.tells_time_in_turn")
def tells_time_in_turn(order_id: int, note: str) -> float:
    """Return the same; each job has a key of its own, which takes turns with others."""
    return time.monotonic()


@task(settle="immediate", name="pgqueue_bench.tells_end")
def tells_end(order_id: int, note: str) -> float:
    """Wait a while, and return when it ended, by the same clock."""
    time.sleep(random.uniform(WAITED_SECONDS_MIN, WAITED_SECONDS_MAX))
    return time.monotonic()


@task(settle="immediate", takes_context=True, name="pgqueue_bench.emits_times")
def emits_times(ctx: JobContext, values: int) -> None:
    """Emit so many times the time, by the same clock, as often as a model a word."""
    for _ in range(values):
        time.sleep(random.uniform(0.0, 2 * WORD_SECONDS))
        ctx.emit(time.monotonic())


@task(settle="immediate", name="pgqueue_bench.long")
def long(order_id: int, note: str) -> None:
    """Wait, as a task does for a server elsewhere."""
    time.sleep(LONG_SECONDS)


@task(settle="batched", name="pgqueue_bench.waits")
async def waits(order_id: int, note: str) -> None:
    """Wait, as a task does for a server elsewhere; the slot is free at once."""
    await asyncio.sleep(WAIT_SECONDS)


@task(settle="batched", archive=False, name="pgqueue_bench.not_archived")
def not_archived(order_id: int, note: str) -> None:
    """Do nothing, and leave no row behind."""


four_steps = saga("pgqueue_bench.four_steps")


@four_steps.step(settle="batched", name="pgqueue_bench.reserve", compensate="undo")
def reserve(order_id: int, note: str) -> None:
    """Do nothing; each step of a saga is a task of its own."""


@four_steps.step(settle="batched", name="pgqueue_bench.charge", compensate="undo")
def charge(order_id: int, note: str) -> None:
    """Do nothing."""


@four_steps.step(settle="batched", name="pgqueue_bench.ship", compensate="undo")
def ship(order_id: int, note: str) -> None:
    """Do nothing."""


@four_steps.step(settle="batched", name="pgqueue_bench.notify")
def notify(order_id: int, note: str) -> None:
    """Do nothing."""


@four_steps.compensation(settle="batched", name="pgqueue_bench.undo")
def undo(order_id: int, note: str) -> None:
    """Do nothing; no step fails."""


def payloads(count: int) -> list[dict[str, Any]]:
    """Return the arguments of *count* jobs."""
    return [{"order_id": n, "note": NOTE} for n in range(count)]


def nothing(payload: dict[str, Any]) -> None:
    """What the yardstick calls for each of its rows."""
