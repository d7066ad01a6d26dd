"""
lanes_*: what order and limits cost, and what they cost those who want neither.

The same jobs with a lane and without one, by the same worker; parked jobs beside free
ones, which is a shape of the backlog; and a promotion by itself, under a transaction
that holds back vacuum.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django_pgqueue.management.bench import gauges, yardstick
from django_pgqueue.management.bench.backlog import BASELINE, OTHER_SIDE, shape
from django_pgqueue.management.bench.drain import drained
from django_pgqueue.management.bench.latency import enqueue_at, paced
from django_pgqueue.management.bench.measure import (
    Goal,
    Measure,
    Opener,
    Pair,
    Plan,
    Run,
    Turns,
    at_least,
    at_most,
)
from django_pgqueue.management.bench.scratch import Scratch, refuse_others
from django_pgqueue.management.bench.tasks import (
    batched,
    in_order,
    limited,
    tells_time,
    tells_time_of_key,
)
from django_pgqueue.management.bench.worker import Worker
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues import lanes
from django_pgqueue.tasks.task import Task
from django_pgqueue.worker.lanes.floors import LaneFloors

JOBS_PER_SECOND_MIN = 3_000

LANE = "pgqueue_bench"

# Locks: the rows are new.
FILL = """
INSERT INTO pgqueue_job (task, lane) SELECT %s, %s FROM generate_series(1, %s)
"""

# What an ack does to the lane. Locks: the job's row.
END = "DELETE FROM pgqueue_job WHERE lane = %s AND visible_at IS NOT NULL"

# How much of a run is its beginning, and its end; and the least that can be halved so.
PART_OF_RUN = 20
PROMOTIONS_MIN = 2 * PART_OF_RUN


class Beside(Turns):
    """Product: jobs in lanes. The other side: the same without, by the same worker."""

    def __init__(
        self,
        scratch: Scratch,
        worker: Worker,
        task: Task[Any, Any],
        free: Task[Any, Any],
    ) -> None:
        super().__init__(scratch)
        self._worker = worker
        self._task = task
        self._free = free

    def product(self, jobs: int) -> Run:
        """Measure those that have a lane."""
        return self._run(self._task, jobs)

    def yardstick(self, jobs: int) -> Run:
        """Measure those that have none."""
        return self._run(self._free, jobs)

    def _run(self, task: Task[Any, Any], jobs: int) -> Run:
        """Return jobs per second."""
        return drained(self.scratch, self._worker, task, jobs)


class LatencyBeside(Beside):
    """The same, for jobs that come one by one to an idle worker, each of a new key."""

    def _run(self, task: Task[Any, Any], jobs: int) -> Run:
        """Return a latency per job, in milliseconds."""
        self._worker.rest()
        return enqueue_at(self.scratch, self._worker, paced(jobs), task=task)


class Snapshot:
    """One run gives both sides: the end of many promotions, and their beginning."""

    def __init__(
        self,
        scratch: Scratch,
        promoting: yardstick.Connection,
        holding: yardstick.Connection,
    ) -> None:
        self._scratch = scratch
        self._cursor = promoting.cursor()
        self._holding = holding.cursor()

    def pair(self, jobs: int) -> Pair:
        """Return milliseconds per promotion, and the pages that the last one read."""
        cursor = self._cursor
        self._scratch.empty()
        refuse_others(cursor)
        # One more for the promotion that is explained.
        cursor.execute(FILL, [batched.name, LANE, jobs + 1])
        gauges.hold_horizon(self._holding)
        try:
            floors = LaneFloors()
            took = [_promotion(cursor, floors) for _ in range(jobs)]
            explaining = gauges.Explaining(cursor)
            last = lanes.promotion([LANE], floors=floors.of(cursor, [LANE]))
            explaining.execute(lanes.PROMOTE, last)
        finally:
            gauges.let_go(self._holding)
        part = max(jobs // PART_OF_RUN, 1)
        return Pair(Run(took[-part:], {"pages": explaining.buffers}), Run(took[:part]))


def _promotion(cursor: Cursor, floors: LaneFloors) -> float:
    """Promote the lane's next job as a worker does, let it end; return milliseconds."""
    began = time.monotonic()
    promoted = lanes.promote(cursor, [LANE], floors=floors.of(cursor, [LANE]))
    floors.learn(cursor, [LANE], promoted)
    seconds = time.monotonic() - began
    assert promoted.jobs == 1
    cursor.execute(END, [LANE])
    return seconds * 1_000


def beside(
    kind: type[Beside], task: Task[Any, Any], free: Task[Any, Any], processes: int
) -> Mapping[str, Opener]:
    @contextmanager
    def opened(scratch: Scratch, plan: Plan) -> Iterator[Beside]:
        with Worker(scratch, threads=8, processes=processes) as worker:
            yield kind(scratch, worker, task, free)

    return {"": opened}


@contextmanager
def _snapshot(scratch: Scratch, plan: Plan) -> Iterator[Snapshot]:
    with scratch.connect() as promoting, scratch.connect() as holding:
        yield Snapshot(scratch, promoting, holding)


LANES_PARKED = Measure(
    name="lanes_parked",
    what="as drain, beside parked jobs of one key",
    unit="jobs/s",
    jobs=20_000,
    goals=(at_least(0.9),),
    baseline=BASELINE,
    other_side=OTHER_SIDE,
    parts={"": shape("parked")},
)

WITHOUT = "the same jobs without a lane"

LANES_ORDER = Measure(
    name="lanes_order",
    what="two processes, 8 threads each, groups of 1,000 keys",
    unit="jobs/s",
    jobs=100_000,
    goals=(Goal("median", JOBS_PER_SECOND_MIN, "jobs/s"),),
    baseline=WITHOUT,
    other_side="no lane",
    parts=beside(Beside, in_order, batched, 2),
)

LANES_LIMIT = Measure(
    name="lanes_limit",
    what="the same with limits of 5",
    unit="jobs/s",
    jobs=100_000,
    goals=(Goal("median", JOBS_PER_SECOND_MIN, "jobs/s"),),
    baseline=WITHOUT,
    other_side="no lane",
    parts=beside(Beside, limited, batched, 2),
)

LANES_LATENCY = Measure(
    name="lanes_latency",
    what="COMMIT to the first line of a job of a new key, idle worker",
    unit="ms",
    jobs=100,
    goals=(at_most("p50", 5, "ms"), at_most("p99", 50, "ms")),
    baseline=WITHOUT,
    other_side="no lane",
    parts=beside(LatencyBeside, tells_time_of_key, tells_time, 1),
    warm_up_jobs=10,
    is_latency=True,
)

LANES_SNAPSHOT = Measure(
    name="lanes_snapshot",
    what="last promotions of one lane under a held snapshot",
    unit="ms",
    jobs=5_000,
    jobs_min=PROMOTIONS_MIN,
    warm_up_jobs=PROMOTIONS_MIN,
    goals=(at_most("ratio", 1.25),),
    baseline="the first promotions of the same run",
    other_side="first",
    parts={"": _snapshot},
)
