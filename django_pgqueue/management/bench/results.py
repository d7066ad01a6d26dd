"""
results: from the last line of a task to the return of get(), in another process.
stream: from emit() of a value, as of a word of a language model, to its reader there.

The other side is the same as where nothing can be heard: who waits looks again and
again, ever less often. A job takes some tenths of a second, so that this matters.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from django_pgqueue.management.bench.measure import Measure, Plan, Run, Turns, at_most
from django_pgqueue.management.bench.place import changed
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import emits_times, payloads, tells_end
from django_pgqueue.management.bench.worker import Worker
from django_pgqueue.tasks import pending, waiting


class Results(Turns):
    """Product: with a listener. The other side: looks alone."""

    # Where the listener is had from.
    hears_by: ModuleType = waiting

    def __init__(self, scratch: Scratch, worker: Worker) -> None:
        super().__init__(scratch)
        self._worker = worker

    def product(self, jobs: int) -> Run:
        """Return a latency per job, or per value, in milliseconds."""
        self._worker.rest()
        return self._returns(jobs)

    def yardstick(self, jobs: int) -> Run:
        """Return the same where whoever waits looks by himself."""
        self._worker.rest()
        with changed(self.hears_by, "ear", lambda: None):
            return self._returns(jobs)

    def _returns(self, jobs: int) -> Run:
        latencies = []
        for item in payloads(jobs):
            ended_at = tells_end.delay(**item).get(timeout="1m")
            latencies.append((time.monotonic() - ended_at) * 1_000)
        return Run(latencies)


class Streams(Results):
    """The same, of the values that one job emits."""

    hears_by = pending

    def _returns(self, jobs: int) -> Run:
        stream = emits_times.delay(jobs).stream(timeout="5m")
        return Run([(time.monotonic() - part.value) * 1_000 for part in stream])


@contextmanager
def _streams(scratch: Scratch, plan: Plan) -> Iterator[Streams]:
    with Worker(scratch, threads=8) as worker:
        yield Streams(scratch, worker)


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

STREAM = Measure(
    name="stream",
    what="a value that a running job emits to its reader in another process",
    unit="ms",
    jobs=200,
    goals=(at_most("p50", 100, "ms"),),
    baseline="the same, where nothing can be heard",
    other_side="looks alone",
    parts={"": _streams},
    warm_up_jobs=20,
    is_latency=True,
)
