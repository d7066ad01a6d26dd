"""
latency_trickle: single jobs at random moments, as users make them, on an idle worker.

Arrivals are a Poisson process: most come alone, some closely after another, which is
where a queue that saves wakes is late. The moments are fixed before: a producer that
fell behind enqueues at once until it has caught up, as a crowd of them would.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from statistics import quantiles
from typing import Any

from django_pgqueue.management.bench.latency import (
    Latency,
    enqueue_at,
    opened_with,
    publish_at,
)
from django_pgqueue.management.bench.measure import (
    Measure,
    Opener,
    Pair,
    Plan,
    Run,
    at_most,
)
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import payloads

# Arrivals a second. All rates take the same time, so --jobs are shared in proportion.
RATES = (20, 100, 500)
JOBS = 10_000

OF_P50, OF_PLAIN = "p99/p50", "p99/plain"


class LatencyTrickle(Latency):
    """Product: delay() to a real worker. Yardstick: LISTEN and a claim loop."""

    per_second = RATES[0]

    def pair(self, jobs: int) -> Pair:
        """Measure both; *jobs* are those of all rates."""
        pair = super().pair(max(jobs * self.per_second // sum(RATES), 2))
        p50, p99 = _cut(pair.product, 50), _cut(pair.product, 99)
        also = {OF_P50: p99 / p50, OF_PLAIN: p99 / _cut(pair.yardstick, 99)}
        return Pair(Run(pair.product.values, also), pair.yardstick)

    def product(self, jobs: int) -> Run:
        """Return a latency per job, in milliseconds."""
        self._worker.rest()
        return enqueue_at(self.scratch, self._worker, arrivals(jobs, self.per_second))

    def yardstick(self, jobs: int) -> Run:
        """Return a latency per row, in milliseconds."""
        items = arrivals(jobs, self.per_second)
        return publish_at(self._publisher, self._consumer, items)


def arrivals(jobs: int, per_second: int) -> Iterator[dict[str, Any]]:
    """Yield the arguments of jobs, each at its moment."""
    gaps = (random.expovariate(per_second) for _ in range(jobs))
    began = time.monotonic()
    for item, at in zip(payloads(jobs), accumulate(gaps), strict=True):
        time.sleep(max(began + at - time.monotonic(), 0.0))
        yield item


def _cut(run: Run, percent: int) -> float:
    return quantiles(run.values, n=100, method="inclusive")[percent - 1]


def _opener(per_second: int) -> Opener:
    @contextmanager
    def opened(scratch: Scratch, plan: Plan) -> Iterator[LatencyTrickle]:
        with opened_with(LatencyTrickle, scratch) as sides:
            sides.per_second = per_second
            yield sides

    return opened


def _parts() -> Mapping[str, Opener]:
    return {f"{per_second}/s": _opener(per_second) for per_second in RATES}


LATENCY_TRICKLE = Measure(
    name="latency_trickle",
    what="COMMIT to the first line of the task, at random moments",
    unit="ms",
    jobs=JOBS,
    jobs_min=sum(RATES) // 2,
    goals=(at_most(OF_P50, 3), at_most(OF_PLAIN, 2.5)),
    parts=_parts(),
    warm_up_jobs=sum(RATES) // 2,
    is_latency=True,
)
