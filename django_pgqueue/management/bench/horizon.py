"""
horizon: whether a drain slows down under a transaction that holds back vacuum.

Such a transaction keeps the dead index entries of all finished jobs, and a claim that
walks over them becomes dearer with every job. One run gives both sides: the pace of
the last tenth of its jobs, and that of the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate, pairwise

from django.core.management.base import CommandError

from django_pgqueue.management.bench import gauges, yardstick
from django_pgqueue.management.bench.drain import drained
from django_pgqueue.management.bench.gauges import Finished
from django_pgqueue.management.bench.measure import Measure, Pair, Plan, Run, at_least
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import batched
from django_pgqueue.management.bench.worker import Worker

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


def tenths(finished: Finished) -> tuple[float, float]:
    """
    Return the jobs per second of the first tenth of the jobs, and of the last.

    Of those after the first settle, before which nothing can be timed. Between two
    settles, jobs count as if they had been finished one by one.

    Raises:
        ValueError: There were fewer than two settles.
    """
    if len(finished) < 2:
        raise ValueError(f"{len(finished)} settles are too few to be timed")
    start = finished[0][0]
    seconds = [(moment - start).total_seconds() for moment, _ in finished]
    done = [float(n) for n in accumulate(count for _, count in finished)]
    tenth = (done[-1] - done[0]) / 10
    first = _seconds_at(done[0] + tenth, done, seconds)
    last = seconds[-1] - _seconds_at(done[-1] - tenth, done, seconds)
    return tenth / first, tenth / last


def _seconds_at(number: float, done: list[float], seconds: list[float]) -> float:
    for (before, start), (after, end) in pairwise(zip(done, seconds, strict=True)):
        if number <= after:
            return start + (end - start) * (number - before) / (after - before)
    return seconds[-1]


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
