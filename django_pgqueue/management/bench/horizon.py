"""
horizon: whether a drain slows down under a transaction that holds back vacuum.

Such a transaction keeps the dead index entries of all finished jobs, and a claim that
walks over them becomes dearer with every job. One run gives both sides: the pace of
the last tenth of its jobs, and that of the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError

from django_pgqueue.management.bench.drain import drained
from django_pgqueue.management.bench.goal import at_least
from django_pgqueue.management.bench.measure import Measure, Pair, Plan, Run
from django_pgqueue.management.bench.pace import tenths
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import batched
from django_pgqueue.management.bench.worker import Worker
from django_pgqueue.postgres import gauges, yardstick

# With fewer, there may be too few settles to be timed.
JOBS_MIN = 3_000


class Horizon:
    """Both sides are the product's, in one run."""

    def __init__(
        self, scratch: Scratch, holding: yardstick.Connection, worker: Worker
    ) -> None:
        self._scratch = scratch
        self._holding = holding.cursor()
        self._worker = worker

    def pair(self, jobs: int) -> Pair:
        """Return jobs per second of the last tenth, and of the first."""
        self._scratch.empty()
        gauges.hold_horizon(self._holding)
        try:
            started = gauges.now(self._worker.cursor)
            drained(self._scratch, self._worker, batched, jobs)
        finally:
            gauges.let_go(self._holding)
        finished = gauges.finished_since(self._worker.cursor, started)
        try:
            first, last = tenths(finished)
        except ValueError as error:
            raise CommandError(
                f"Of {jobs:,} jobs, {error}. Give more with --jobs."
            ) from error
        return Pair(Run([last]), Run([first]))


@contextmanager
def _opened(scratch: Scratch, plan: Plan) -> Iterator[Horizon]:
    with (
        scratch.connect() as holding,
        Worker(scratch, threads=8) as worker,
    ):
        yield Horizon(scratch, holding, worker)


HORIZON = Measure(
    name="horizon",
    what="last tenth of a drain under a held snapshot, beside the first",
    unit="jobs/s",
    jobs=100_000,
    jobs_min=JOBS_MIN,
    warm_up_jobs=JOBS_MIN,
    goals=(at_least(0.9),),
    baseline="the first tenth of the same run",
    other_side="first tenth",
    parts={"": _opened},
)
