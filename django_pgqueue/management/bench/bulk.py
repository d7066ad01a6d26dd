"""bulk: many jobs in one call."""

from __future__ import annotations

import time

from django_pgqueue.management.bench.goal import at_least
from django_pgqueue.management.bench.measure import Measure, Run
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import immediate, payloads
from django_pgqueue.management.bench.turns import Turns, beside_connection
from django_pgqueue.postgres import yardstick


class Bulk(Turns):
    """Product: task.bulk(). Yardstick: one INSERT … SELECT unnest."""

    def __init__(self, scratch: Scratch, connection: yardstick.Connection) -> None:
        super().__init__(scratch)
        self._connection = connection

    def product(self, jobs: int) -> Run:
        """Return jobs per second."""
        items = payloads(jobs)
        started = time.perf_counter()
        immediate.bulk(items)
        return Run([jobs / (time.perf_counter() - started)])

    def yardstick(self, jobs: int) -> Run:
        """Return rows per second; both sides start from Python values."""
        return Run([jobs / yardstick.bulk(self._connection, payloads(jobs))])


BULK = Measure(
    name="bulk",
    what="bulk(), all in one call",
    unit="jobs/s",
    jobs=10_000,
    goals=(at_least(0.9),),
    parts=beside_connection(Bulk),
)
