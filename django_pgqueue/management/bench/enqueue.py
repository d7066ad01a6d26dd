"""enqueue: delay() one by one, each in a commit of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from django_pgqueue.management.bench.measure import Measure
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import immediate, payloads
from django_pgqueue.postgres import yardstick


class Enqueue:
    """Product: through Django's connection. Yardstick: insert and notify in one."""

    def __init__(self, connection: yardstick.Connection) -> None:
        self._connection = connection

    def product(self, jobs: int) -> list[float]:
        """Return jobs per second."""
        items = payloads(jobs)
        started = time.perf_counter()
        for item in items:
            immediate.delay(**item)
        return [jobs / (time.perf_counter() - started)]

    def yardstick(self, jobs: int) -> list[float]:
        """Return rows per second."""
        return [jobs / yardstick.enqueue(self._connection, payloads(jobs))]


@contextmanager
def _open(scratch: Scratch) -> Iterator[Enqueue]:
    with scratch.connect() as connection:
        yield Enqueue(connection)


ENQUEUE = Measure(
    name="enqueue", what="delay(), one by one", unit="jobs/s", jobs=2_000, open=_open
)
