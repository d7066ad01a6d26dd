"""
results: from the last line of a task to the return of get(), in another process.

The other side is the same as where nothing can be heard: who waits looks again and
again, ever less often. A job takes some tenths of a second, so that this matters.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from django_pgqueue.management.bench.measure import Measure, Plan, Run, Turns, at_most
from django_pgqueue.management.bench.place import changed
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import payloads, tells_end
from django_pgqueue.management.bench.worker import Worker
from django_pgqueue.tasks import waiting


class Results(Turns):
    """Product: with a listener. The other side: looks alone."""

    def __init__(self, scratch: Scratch, worker: Worker) -> None:
        super().__init__(scratch)
        self._worker = worker

    def product(self, jobs: int) -> Run:
        """Return a latency per job, in milliseconds."""
        return self._returns(jobs)

    def yardstick(self, jobs: int) -> Run:
        """Return a latency per job, in milliseconds."""
        with changed(waiting, "ear", lambda: None):
            return self._returns(jobs)

    def _returns(self, jobs: int) -> Run:
        self._worker.rest()
        latencies = []
        for item in payloads(jobs):
            ended_at = tells_end.delay(**item).get(timeout="1m")
            latencies.append((time.monotonic() - ended_at) * 1_000)
        return Run(latencies)


@contextmanager
def _opened(scratch: Scratch, plan: Plan) -> Iterator[Results]:
    with Worker(scratch, threads=8) as worker:
        yield Results(scratch, worker)


RESULTS = Measure(
    name="results",
    what="the end of a job to the return of get() in another process",
    unit="ms",
    jobs=20,
    goals=(at_most("p50", 5, "ms"),),
    baseline="the same, where nothing can be heard",
    other_side="looks alone",
    parts={"": _opened},
    warm_up_jobs=10,
    is_latency=True,
)
