"""
latency_mixed: what a short, urgent job waits for on a worker that is busy.

The worker has a backlog of one queue and one priority: one job in a hundred waits for
0.1 s, as tasks do for servers elsewhere, the others do nothing. Beside it, single jobs
of a higher priority are enqueued, as `latency` does on an idle worker; which is the
other side. All threads may be in a long job at once, so the latency has three parts:
hearing of the job, what was claimed ahead of it, and a thread that comes free.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError
from django.db import transaction

from django_pgqueue.management.bench.latency import PAUSE_SECONDS_MAX, latencies
from django_pgqueue.management.bench.measure import Measure, Plan, Run, Turns, at_most
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import (
    LONG_SECONDS,
    immediate,
    long,
    payloads,
)
from django_pgqueue.management.bench.worker import Worker
from django_pgqueue.models import Job

THREADS = 8
URGENT = 10

# One long job, then so many short ones; the threads cannot be faster than this.
SHORT = 99
LOAD_JOBS_PER_SECOND = THREADS / LONG_SECONDS * (1 + SHORT)

# More than the run can take, and enough for its start.
LOAD_MORE, LOAD_JOBS_MIN = 1.2, 1_000


class LatencyMixed(Turns):
    """Product: a busy worker. The other side: the same worker, idle."""

    def __init__(self, scratch: Scratch, worker: Worker) -> None:
        super().__init__(scratch)
        self._worker = worker

    def product(self, jobs: int) -> Run:
        """Return a latency per urgent job, in milliseconds."""
        self._worker.rest()
        self._load(jobs * PAUSE_SECONDS_MAX)
        run = latencies(self.scratch, self._worker, jobs, priority=URGENT)
        live = Job.objects.using(self.scratch.alias)
        # What waits is taken away; what runs comes to its end.
        if not live.filter(leased_by=None).delete()[0]:
            raise CommandError("The load ran dry, so nothing was measured beside it.")
        self._worker.wait_while(live.exists)
        return run

    def yardstick(self, jobs: int) -> Run:
        """Return a latency per job, in milliseconds."""
        self._worker.rest()
        return latencies(self.scratch, self._worker, jobs, priority=URGENT)

    def _load(self, seconds: float) -> None:
        wanted = LOAD_JOBS_MIN + seconds * LOAD_JOBS_PER_SECOND * LOAD_MORE
        items = payloads(1 + SHORT)
        with transaction.atomic(using=self.scratch.alias):
            for _ in range(int(wanted / len(items))):
                long.delay(**items[0])
                immediate.bulk(items[1:])


@contextmanager
def _opened(scratch: Scratch, plan: Plan) -> Iterator[LatencyMixed]:
    with Worker(scratch, threads=THREADS) as worker:
        yield LatencyMixed(scratch, worker)


LATENCY_MIXED = Measure(
    name="latency_mixed",
    what="an urgent job on a worker busy with short and long ones",
    unit="ms",
    jobs=100,
    goals=(at_most("p99", 150, "ms"),),
    baseline="the same worker, idle",
    other_side="idle worker",
    parts={"": _opened},
    warm_up_jobs=10,
    is_latency=True,
)
