"""bulk: many jobs in one call."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from django_pgqueue.management.bench.measure import Measure
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import immediate, payloads
from django_pgqueue.postgres import yardstick


class Bulk:
    """Product: task.bulk(). Yardstick: one INSERT … SELECT unnest."""

    def __init__(self, connection: yardstick.Connection) -> None:
        self._connection = connection

    def product(self, jobs: int) -> list[float]:
        """Return jobs per second."""
        items = payloads(jobs)
        started = time.perf_counter()
        immediate.bulk(items)
        return [jobs / (time.perf_counter() - started)]

    def yardstick(self, jobs: int) -> list[float]:
        """Return rows per second; both sides start from Python values."""
        return [jobs / yardstick.bulk(self._connection, payloads(jobs))]


@contextmanager
def _open(scratch: Scratch) -> Iterator[Bulk]:
    with scratch.connect() as connection:
        yield Bulk(connection)


BULK = Measure(
    name="bulk", what="bulk(), all in one call", unit="jobs/s", jobs=10_000, open=_open
)
