"""enqueue: delay() one by one, each in a commit of its own."""

from __future__ import annotations

import time

from django_pgqueue.management.bench.goal import at_least
from django_pgqueue.management.bench.measure import Measure, Run
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import immediate, payloads
from django_pgqueue.management.bench.turns import Turns, beside_connection
from django_pgqueue.postgres import yardstick


class Enqueue(Turns):
    """Product: through Django's connection. Yardstick: insert and notify in one."""

    def __init__(self, scratch: Scratch, connection: yardstick.Connection) -> None:
        super().__init__(scratch)
        self._connection = connection

    def product(self, jobs: int) -> Run:
        """Return jobs per second."""
        items = payloads(jobs)
        started = time.perf_counter()
        for item in items:
            immediate.delay(**item)
        return Run([jobs / (time.perf_counter() - started)])

    def yardstick(self, jobs: int) -> Run:
        """Return rows per second."""
        return Run([jobs / yardstick.enqueue(self._connection, payloads(jobs))])


ENQUEUE = Measure(
    name="enqueue",
    what="delay() one by one, a commit each",
    unit="jobs/s",
    jobs=2_000,
    goals=(at_least(0.6),),
    parts=beside_connection(Enqueue),
)
