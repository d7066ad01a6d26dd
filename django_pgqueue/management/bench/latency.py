"""
latency: from COMMIT to the first line of the task, on an idle worker.

The clock is read right before COMMIT is sent, since a worker may well start before
the producer has its answer. It is the machine's, which all its processes share.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from django.db import transaction

from django_pgqueue.management.bench import gauges, yardstick
from django_pgqueue.management.bench.measure import Measure, Plan, Run, Turns, at_most
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import payloads, tells_time
from django_pgqueue.management.bench.worker import Worker
from django_pgqueue.models import ArchivedJob
from django_pgqueue.tasks.enqueuer import Enqueuer
from django_pgqueue.tasks.task import Task

# Between two jobs: random, so that no timer of the worker falls into step with it,
# and above the interval in which wakes of one process are coalesced.
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.03, 0.07

# What a consumer gets to take its last row.
LAST_SECONDS = 5.0


# Arguments of jobs, each yielded at its moment.
Items = Iterator[dict[str, Any]]


class Latency(Turns):
    """Product: delay() to a real worker. Yardstick: LISTEN and a claim loop."""

    def __init__(
        self,
        scratch: Scratch,
        publisher: yardstick.Connection,
        consumer: yardstick.Consumer,
        worker: Worker,
    ) -> None:
        super().__init__(scratch)
        self._publisher = publisher
        self._consumer = consumer
        self._worker = worker

    def product(self, jobs: int) -> Run:
        """Return a latency per job, in milliseconds."""
        self._worker.rest()
        return latencies(self.scratch, self._worker, jobs)

    def yardstick(self, jobs: int) -> Run:
        """Return a latency per row, in milliseconds."""
        return publish_at(self._publisher, self._consumer, paced(jobs))


L = TypeVar("L", bound=Latency)


def latencies(scratch: Scratch, worker: Worker, jobs: int, *, priority: int = 0) -> Run:
    """Enqueue jobs at random intervals; return a latency for each, in milliseconds."""
    return enqueue_at(scratch, worker, paced(jobs), priority=priority)


def publish_at(
    publisher: yardstick.Connection, consumer: yardstick.Consumer, items: Items
) -> Run:
    """Insert a row whenever *items* yields; return a latency for each, likewise."""
    commits_at = dict(yardstick.publish(publisher, item) for item in items)
    until = time.monotonic() + LAST_SECONDS
    started_at = consumer.started_at
    while not commits_at.keys() <= started_at.keys() and time.monotonic() < until:
        time.sleep(PAUSE_SECONDS_MIN)
    return _milliseconds(commits_at, started_at)


def enqueue_at(
    scratch: Scratch,
    worker: Worker,
    items: Items,
    *,
    task: Task[Any, float] = tells_time,
    priority: int = 0,
) -> Run:
    """Enqueue a job whenever *items* yields; return a latency for each, likewise."""
    one = task.using(priority=priority)
    commits_at = dict(_delay(scratch, one, item) for item in items)
    for job_id in commits_at:
        worker.wait_while(partial(gauges.is_live, worker.cursor, job_id))
    started_at = dict(
        ArchivedJob.objects.using(scratch.alias)
        .filter(pk__in=commits_at)
        .values_list("pk", "result")
    )
    return _milliseconds(commits_at, started_at)


def paced(jobs: int) -> Iterator[dict[str, Any]]:
    """Yield the arguments of jobs, with a random pause before each."""
    for item in payloads(jobs):
        time.sleep(random.uniform(PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX))
        yield item


def _delay(
    scratch: Scratch, one: Enqueuer[Any, float], item: dict[str, Any]
) -> tuple[int, float]:
    with transaction.atomic(using=scratch.alias):
        result = one.delay(**item)
        commits_at = time.monotonic()
    return result.id, commits_at


def _milliseconds(commits_at: dict[int, float], started_at: dict[int, float]) -> Run:
    return Run(
        [(started_at[row_id] - moment) * 1_000 for row_id, moment in commits_at.items()]
    )


@contextmanager
def opened_with(kind: type[L], scratch: Scratch) -> Iterator[L]:
    """Open both sides, for as long as the block lasts."""
    with (
        scratch.connect() as publisher,
        scratch.connect() as listening,
        scratch.connect() as claiming,
        Worker(scratch, threads=8) as worker,
    ):
        consumer = yardstick.Consumer(listening, claiming)
        consumer.start()
        try:
            yield kind(scratch, publisher, consumer, worker)
        finally:
            consumer.stop()


@contextmanager
def _opened(scratch: Scratch, plan: Plan) -> Iterator[Latency]:
    with opened_with(Latency, scratch) as sides:
        yield sides


LATENCY = Measure(
    name="latency",
    what="COMMIT to the first line of the task, idle worker, 8 threads",
    unit="ms",
    jobs=100,
    goals=(at_most("p50", 1.2, "ms"), at_most("p99", 4, "ms")),
    parts={"": _opened},
    warm_up_jobs=10,
    is_latency=True,
)
