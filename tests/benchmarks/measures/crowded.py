"""Whether other rows, or a transaction that holds back vacuum, make jobs slower."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import accumulate, pairwise
from typing import Any

from django_pgqueue.queues import lanes
from django_pgqueue.queues.claim import claim
from django_pgqueue.worker.lanes.promoter import LaneFloors
from tests.benchmarks.measure import Opened, Pair, PairRun, measure
from tests.benchmarks.measures import tasks
from tests.benchmarks.processes import FailedError
from tests.benchmarks.scratch import Scratch, Worker
from tests.harness.plans import Explaining

Opening = Generator[PairRun, None, None]

QUEUE = "default"
CLAIM_LIMIT = 10

LANE = "benchmarks"

# With it, the arguments of a row take as many bytes as those of the measured jobs.
ROWS = """
SELECT %(queue)s, %(task)s,
       jsonb_build_object('order_id', n, 'note', repeat('x', 72)){more}
  FROM generate_series(1, %(rows)s) n ORDER BY n
"""
JOB = "INSERT INTO pgqueue_job (queue, task, kwargs{columns})"
READY = JOB.format(columns="") + ROWS.format(more="")
SCHEDULED = JOB.format(columns=", visible_at") + ROWS.format(
    more=", statement_timestamp() + interval '1 day' + n * interval '1 ms'"
)
# All in one group, which the first of them holds up until tomorrow.
PARKED = JOB.format(columns=", lane, run_after") + ROWS.format(
    more=f", '{LANE}', CASE n WHEN 1 THEN statement_timestamp() + interval '1 day' END"
)
# In the partition that the measured jobs come to.
ARCHIVED = """
INSERT INTO pgqueue_archived_job (queue, task, kwargs, id, attempt, deliveries, state,
                                  started_at, finished_at, worker)
""" + ROWS.format(
    more=", nextval(pg_get_serial_sequence('pgqueue_job', 'id')), 1, 1, 'succeeded', "
    "statement_timestamp(), statement_timestamp(), 'benchmarks'"
)

# By the name of its shape: what is beside the measured jobs, and in which queue.
SHAPES = {
    "other_queue": (READY, "elsewhere"),
    "scheduled": (SCHEDULED, QUEUE),
    "parked": (PARKED, QUEUE),
    "archived": (ARCHIVED, QUEUE),
}

# What autovacuum would do at any moment: done now, it does not happen meanwhile.
TIDY = "VACUUM (ANALYZE) pgqueue_job, pgqueue_archived_job"

# Jobs of one settle share their moment, by the server's clock.
FINISHED = """
SELECT finished_at, count(*) FROM pgqueue_archived_job WHERE finished_at >= %s
 GROUP BY finished_at ORDER BY finished_at
"""
NOW = "SELECT clock_timestamp()"

# From its first query on, nothing that anybody deletes can be vacuumed away.
HOLD = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class"

FILL_LANE = """
INSERT INTO pgqueue_job (task, lane) SELECT %s, %s FROM generate_series(1, %s)
"""
# What an ack does to the lane.
END_IN_LANE = "DELETE FROM pgqueue_job WHERE lane = %s AND visible_at IS NOT NULL"


@contextmanager
def held_horizon(scratch: Scratch) -> Iterator[None]:
    """Keep vacuum from removing what is deleted from now on."""
    with scratch.connect() as holding:
        holding.execute(HOLD)
        yield
        holding.execute("ROLLBACK")


def horizon(scratch: Scratch) -> Opening:
    """The pace of the last tenth of the jobs of a run, beside that of the first."""
    with scratch.worker() as worker:

        def pair(jobs: int) -> Pair:
            scratch.empty()
            with held_horizon(scratch):
                started = worker.value(NOW)
                worker.drained(tasks.batched.bulk, jobs)
            finished = worker.connection.execute(FINISHED, [started]).fetchall()
            first, last = tenths(finished)
            return Pair(last, first)

        yield pair


def tenths(finished: Sequence[Any]) -> tuple[float, float]:
    """
    Return the jobs per second of the first tenth of the jobs, and of the last.

    Of those after the first settle, before which nothing can be timed. Between two
    settles, jobs count as if they had been finished one by one.
    """
    if len(finished) < 2:
        raise FailedError(f"{len(finished)} settles are too few; give more --jobs")
    seconds = [(at - finished[0][0]).total_seconds() for at, _ in finished]
    done = [float(n) for n in accumulate(count for _, count in finished)]

    def seconds_at(number: float) -> float:
        for (before, start), (after, end) in pairwise(zip(done, seconds, strict=True)):
            if number <= after:
                return start + (end - start) * (number - before) / (after - before)
        return seconds[-1]

    tenth = (done[-1] - done[0]) / 10
    first = seconds_at(done[0] + tenth)
    return tenth / first, tenth / (seconds[-1] - seconds_at(done[-1] - tenth))


def beside(shape: str) -> Opened:
    """Return a drain beside rows of a shape, beside the same on empty tables."""

    def opened(scratch: Scratch) -> Opening:
        with ExitStack() as stack:
            in_full = stack.enter_context(scratch.another("full"))
            with in_full():
                full = stack.enter_context(scratch.worker(f"--queues={QUEUE}"))
            alone = stack.enter_context(scratch.worker(f"--queues={QUEUE}"))
            scratch.say(f"backlog {shape}: loading {scratch.rows:,} rows")
            load(full, *SHAPES[shape], scratch.rows)

            def pair(jobs: int) -> Pair:
                with in_full():
                    buffers = claim_buffers(full)
                    product = full.drained(tasks.batched.bulk, jobs)
                scratch.empty()
                claim_buffers(alone)
                other = alone.drained(tasks.batched.bulk, jobs)
                return Pair(product, other, {"claim_buffers": buffers})

            yield pair

    return opened


def load(worker: Worker, statement: str, queue: str, rows: int) -> None:
    """Add rows, and vacuum and analyse their tables."""
    values = {"queue": queue, "task": tasks.batched.name, "rows": rows}
    worker.connection.execute(statement, values)
    worker.connection.execute(TIDY)
    worker.connection.execute("CHECKPOINT")


def claim_buffers(worker: Worker) -> float:
    """Tidy; return the pages that a claim of ten reads, of which nothing remains."""
    worker.connection.execute(TIDY)
    with worker.connection.transaction(force_rollback=True):
        values = {"queue": QUEUE, "task": tasks.batched.name, "rows": CLAIM_LIMIT}
        worker.connection.execute(READY, values)
        explaining: Any = Explaining(worker.connection.cursor())
        claim(
            explaining,
            queues=[QUEUE],
            worker="benchmarks",
            limit=CLAIM_LIMIT,
            lease=timedelta(minutes=1),
        )
    assert explaining.rows == CLAIM_LIMIT
    return float(explaining.buffers)


def snapshot(scratch: Scratch) -> Opening:
    """Milliseconds of the last promotions of one lane, beside the first of a run."""
    with scratch.connect() as connection:
        cursor = connection.cursor()

        def promotion(floors: LaneFloors) -> float:
            """Promote the lane's next job as a worker does, and let it end."""
            began = time.monotonic()
            promoted = lanes.promote(cursor, [LANE], floors=floors.of(cursor, [LANE]))
            floors.learn(cursor, [LANE], promoted)
            seconds = time.monotonic() - began
            assert promoted.jobs == 1
            cursor.execute(END_IN_LANE, [LANE])
            return seconds * 1_000

        def pair(jobs: int) -> Pair:
            scratch.empty()
            # One more for the promotion that is explained.
            cursor.execute(FILL_LANE, [tasks.batched.name, LANE, jobs + 1])
            with held_horizon(scratch):
                floors = LaneFloors()
                took = [promotion(floors) for _ in range(jobs)]
                explaining = Explaining(cursor)
                last = lanes.promotion([LANE], floors=floors.of(cursor, [LANE]))
                explaining.execute(lanes.PROMOTE, last)
            part = max(jobs // 20, 1)
            return Pair(took[-part:], took[:part], {"pages": explaining.buffers})

        yield pair


EMPTY = "the same drain on empty tables"

measure(
    "horizon",
    "last tenth of a drain under a held snapshot, beside the first",
    "ratio >= 0.9",
    parts={"": horizon},
    jobs=100_000,
    jobs_min=3_000,
    warm_up=3_000,
    beside="the first tenth of the same run",
)
measure(
    "backlog",
    "as drain, beside a backlog of each shape; the worst counts",
    "ratio >= 0.9",
    "claim_buffers <= 500 pages",
    parts={shape: beside(shape) for shape in SHAPES},
    beside=EMPTY,
)
measure(
    "lanes_parked",
    "as drain, beside parked jobs of one key",
    "ratio >= 0.9",
    parts={"": beside("parked")},
    beside=EMPTY,
)
measure(
    "lanes_snapshot",
    "last promotions of one lane under a held snapshot",
    "ratio <= 1.25",
    parts={"": snapshot},
    unit="ms",
    jobs=5_000,
    jobs_min=40,
    warm_up=40,
    beside="the first promotions of the same run",
)
