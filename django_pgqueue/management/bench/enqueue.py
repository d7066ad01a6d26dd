"""enqueue and bulk: delay() one by one, and many jobs in one call."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Any

from django_pgqueue.management.bench import yardstick
from django_pgqueue.management.bench.measure import (
    Measure,
    Run,
    Turns,
    at_least,
    beside_connection,
)
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import immediate, payloads


class Enqueuing(Turns):
    """Both sides start from Python values."""

    def __init__(self, scratch: Scratch, connection: yardstick.Connection) -> None:
        super().__init__(scratch)
        self._connection = connection

    def product(self, jobs: int) -> Run:
        """Return jobs per second."""
        items = payloads(jobs)
        started = time.perf_counter()
        self.enqueue(items)
        return Run([jobs / (time.perf_counter() - started)])

    @abstractmethod
    def enqueue(self, items: list[dict[str, Any]]) -> None:
        """Enqueue a job for each."""


class Enqueue(Enqueuing):
    """Product: through Django's connection. Yardstick: insert and notify in one."""

    def enqueue(self, items: list[dict[str, Any]]) -> None:
        """One by one, each in a commit of its own."""
        for item in items:
            immediate.delay(**item)

    def yardstick(self, jobs: int) -> Run:
        """Return rows per second."""
        return Run([jobs / yardstick.enqueue(self._connection, payloads(jobs))])


class Bulk(Enqueuing):
    """Product: task.bulk(). Yardstick: one INSERT … SELECT unnest."""

    def enqueue(self, items: list[dict[str, Any]]) -> None:
        """All in one call."""
        immediate.bulk(items)

    def yardstick(self, jobs: int) -> Run:
        """Return rows per second."""
        return Run([jobs / yardstick.bulk(self._connection, payloads(jobs))])


ENQUEUE = Measure(
    name="enqueue",
    what="delay() one by one, a commit each",
    unit="jobs/s",
    jobs=2_000,
    goals=(at_least(0.6),),
    parts=beside_connection(Enqueue),
)

BULK = Measure(
    name="bulk",
    what="bulk(), all in one call",
    unit="jobs/s",
    jobs=10_000,
    goals=(at_least(0.9),),
    parts=beside_connection(Bulk),
)
