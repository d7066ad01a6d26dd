"""
fair_*: what turns cost, and what they are for.

A key with many jobs has all of them parked, and a part is let through for each claim;
beside it, single jobs of other keys come. How long they wait on a worker that is busy
with the many, and how fast those are done beside the same jobs that take no turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError
from django.db import transaction

from django_pgqueue.management.bench.lanes import WITHOUT, Beside, beside
from django_pgqueue.management.bench.latency import enqueue_at, paced
from django_pgqueue.management.bench.measure import (
    Measure,
    Plan,
    Run,
    Turns,
    at_least,
    at_most,
)
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import (
    batched,
    fair,
    payloads,
    tells_time,
    tells_time_in_turn,
)
from django_pgqueue.management.bench.worker import Worker
from django_pgqueue.models import Job

# Jobs of the one key, in one transaction.
LOAD_JOBS = 100_000


class Busy(Turns):
    """Product: jobs of other keys beside many of one. The other side: none beside."""

    def __init__(self, scratch: Scratch, worker: Worker) -> None:
        super().__init__(scratch)
        self._worker = worker

    def product(self, jobs: int) -> Run:
        """Return a latency per job of a key of its own, in milliseconds."""
        self._worker.rest()
        with transaction.atomic(using=self.scratch.alias):
            fair.bulk(payloads(LOAD_JOBS))
        run = enqueue_at(
            self.scratch, self._worker, paced(jobs), task=tells_time_in_turn
        )
        live = Job.objects.using(self.scratch.alias)
        # What waits is taken away; what was claimed comes to its end.
        if not live.filter(leased_by=None).delete()[0]:
            raise CommandError("The load ran dry, so nothing was measured beside it.")
        self._worker.wait_while(live.exists)
        return run

    def yardstick(self, jobs: int) -> Run:
        """Return a latency per job, in milliseconds."""
        self._worker.rest()
        return enqueue_at(self.scratch, self._worker, paced(jobs), task=tells_time)


@contextmanager
def _busy(scratch: Scratch, plan: Plan) -> Iterator[Busy]:
    with Worker(scratch, threads=8) as worker:
        yield Busy(scratch, worker)


FAIR_DRAIN = Measure(
    name="fair_drain",
    what="one process, 8 threads, all jobs of one key that takes turns",
    unit="jobs/s",
    jobs=100_000,
    goals=(at_least(0.7),),
    baseline=WITHOUT,
    other_side="no lane",
    parts=beside(Beside, fair, batched, 1),
)

FAIR_LATENCY = Measure(
    name="fair_latency",
    what="a job of another key, on a worker busy with 100,000 of one",
    unit="ms",
    jobs=40,
    goals=(at_most("p99", 100, "ms"),),
    baseline="an idle worker",
    other_side="idle worker",
    parts={"": _busy},
    warm_up_jobs=2,
    is_latency=True,
)
