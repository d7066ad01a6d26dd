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

from django.db import transaction

from django_pgqueue.management.bench.measure import Measure
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import payloads, tells_time
from django_pgqueue.management.bench.worker import Worker
from django_pgqueue.models import ArchivedJob
from django_pgqueue.postgres import yardstick

# Between two jobs: random, so that no timer of the worker falls into step with it,
# and above the interval in which wakes of one process are coalesced.
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.03, 0.07

# What a consumer gets to take its last row.
LAST_SECONDS = 5.0


class Latency:
    """Product: delay() to a real worker. Yardstick: LISTEN and a claim loop."""

    def __init__(
        self,
        scratch: Scratch,
        publisher: yardstick.Connection,
        consumer: yardstick.Consumer,
        worker: Worker,
    ) -> None:
        self._scratch = scratch
        self._publisher = publisher
        self._consumer = consumer
        self._worker = worker

    def product(self, jobs: int) -> list[float]:
        """Return a latency per job, in milliseconds."""
        self._worker.rest()
        commits_at = dict(self._delay(item) for item in _paced(jobs))
        self._worker.wait_until_done(list(commits_at))
        started_at = dict(
            ArchivedJob.objects.using(self._scratch.alias)
            .filter(pk__in=commits_at)
            .values_list("pk", "result")
        )
        return _milliseconds(commits_at, started_at)

    def yardstick(self, jobs: int) -> list[float]:
        """Return a latency per row, in milliseconds."""
        commits_at = dict(
            yardstick.publish(self._publisher, item) for item in _paced(jobs)
        )
        until = time.monotonic() + LAST_SECONDS
        started_at = self._consumer.started_at
        while not commits_at.keys() <= started_at.keys() and time.monotonic() < until:
            time.sleep(PAUSE_SECONDS_MIN)
        return _milliseconds(commits_at, started_at)

    def _delay(self, item: dict[str, object]) -> tuple[int, float]:
        with transaction.atomic(using=self._scratch.alias):
            result = tells_time.delay(**item)  # type: ignore[arg-type]
            commits_at = time.monotonic()
        return result.id, commits_at


def _paced(jobs: int) -> Iterator[dict[str, object]]:
    for item in payloads(jobs):
        time.sleep(random.uniform(PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX))
        yield item


def _milliseconds(
    commits_at: dict[int, float], started_at: dict[int, float]
) -> list[float]:
    return [
        (started_at[row_id] - moment) * 1_000 for row_id, moment in commits_at.items()
    ]


@contextmanager
def _open(scratch: Scratch) -> Iterator[Latency]:
    with (
        scratch.connect() as publisher,
        scratch.connect() as listening,
        scratch.connect() as claiming,
        Worker(scratch, threads=8) as worker,
    ):
        consumer = yardstick.Consumer(listening, claiming)
        consumer.start()
        try:
            yield Latency(scratch, publisher, consumer, worker)
        finally:
            consumer.stop()


LATENCY = Measure(
    name="latency",
    what="from COMMIT to the first line of the task, idle",
    unit="ms",
    jobs=100,
    open=_open,
    is_latency=True,
)
