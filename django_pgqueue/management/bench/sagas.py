"""
workflows_sagas: steps per second of sagas, whose steps come one by one.

They commit all at once, beside a worker that is up and idle: so there is always another
saga whose step can run, and a saga's own pace is hidden.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from django_pgqueue.management.bench.drain import drained
from django_pgqueue.management.bench.measure import (
    Measure,
    Plan,
    Run,
    Turns,
    at_least,
)
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import NOTE, batched, four_steps
from django_pgqueue.management.bench.worker import Worker
from django_pgqueue.models import Workflow

STEPS = 4


class Sagas(Turns):
    """Product: sagas of four steps. The other side: as many jobs of no workflow."""

    def __init__(self, scratch: Scratch, worker: Worker) -> None:
        super().__init__(scratch)
        self._worker = worker

    def product(self, jobs: int) -> Run:
        """Return steps per second, from the commit until the last saga has ended."""
        self._worker.rest()
        committed_at: list[float] = []
        sagas = max(jobs // STEPS, 1)
        with transaction.atomic(using=self.scratch.alias):
            # Registered first, so it runs between the commit and the wake.
            transaction.on_commit(
                lambda: committed_at.append(time.monotonic()), using=self.scratch.alias
            )
            started = [four_steps.start(order_id=n, note=NOTE) for n in range(sagas)]
        first, last = started[0].id, started[-1].id
        # The last one alone is cheap to ask for, and the others are seldom behind it.
        stored = Workflow.objects.using(self.scratch.alias).exclude(state="succeeded")
        self._worker.wait_while(stored.filter(id=last).exists)
        self._worker.wait_while(stored.filter(id__range=(first, last)).exists)
        return Run([sagas * STEPS / (time.monotonic() - committed_at[0])])

    def yardstick(self, jobs: int) -> Run:
        """Return jobs per second."""
        return drained(self.scratch, self._worker, batched, jobs)


@contextmanager
def _opened(scratch: Scratch, plan: Plan) -> Iterator[Sagas]:
    with Worker(scratch, threads=8) as worker:
        yield Sagas(scratch, worker)


WORKFLOWS_SAGAS = Measure(
    name="workflows_sagas",
    what="sagas of four steps that do nothing, beside as many jobs",
    unit="steps/s",
    jobs=4_000,
    goals=(at_least(400, "median", "steps/s"),),
    baseline="jobs of no workflow",
    other_side="no workflow",
    parts={"": _opened},
)
