"""
backlog: whether a million other rows make a drain slower.

Each shape has a scratch place of its own, filled once, by one INSERT … SELECT
generate_series; the other side is the same drain on empty tables, run by run. The
measure is as good as its worst shape.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, cast

import psycopg
from django.core.management.base import CommandError

from django_pgqueue.management.bench import gauges
from django_pgqueue.management.bench.drain import drained
from django_pgqueue.management.bench.gauges import Finished
from django_pgqueue.management.bench.measure import (
    Measure,
    Opener,
    Pair,
    Plan,
    Run,
    at_least,
    at_most,
)
from django_pgqueue.management.bench.scratch import Scratch, refuse_others
from django_pgqueue.management.bench.tasks import batched
from django_pgqueue.management.bench.worker import Worker
from django_pgqueue.postgres.wake import wake
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.pause import pause, resume

if TYPE_CHECKING:
    from django_pgqueue.postgres.cursor import Cursor

CLAIM_BUFFERS_MAX = 500
CLAIM_LIMIT = 10

# A worker that hears of a queue it does not know asks which there are, and which are
# paused; so a pause comes to it at once.
UNKNOWN_QUEUE = "pgqueue_bench.pause"

QUEUE, QUEUE_ELSEWHERE = "default", "elsewhere"

# With it, the arguments of a row take as many bytes as those of the measured jobs.
ARGUMENTS = "jsonb_build_object('order_id', n, 'note', repeat('x', 72))"

# Due now; where a line holds several batches, in the order in which they came.
READY = f"""
INSERT INTO pgqueue_job (queue, task, kwargs)
SELECT %(queue)s, %(task)s, {ARGUMENTS} FROM generate_series(1, %(rows)s) n
"""

# From tomorrow on, a millisecond apart.
SCHEDULED = f"""
INSERT INTO pgqueue_job (queue, task, kwargs, visible_at)
SELECT %(queue)s, %(task)s, {ARGUMENTS},
       statement_timestamp() + interval '1 day' + n * interval '1 ms'
  FROM generate_series(1, %(rows)s) n
"""

# All in one group, which the first of them holds up until tomorrow.
PARKED = f"""
INSERT INTO pgqueue_job (queue, task, kwargs, lane, run_after)
SELECT %(queue)s, %(task)s, {ARGUMENTS}, 'pgqueue_bench',
       CASE n WHEN 1 THEN statement_timestamp() + interval '1 day' END
  FROM generate_series(1, %(rows)s) n ORDER BY n
"""

# Of this moment: in the partition that the measured jobs come to.
ARCHIVED = f"""
INSERT INTO pgqueue_archived_job (id, queue, task, kwargs, attempt, deliveries, state,
                                  started_at, finished_at, worker)
SELECT nextval(pg_get_serial_sequence('pgqueue_job', 'id')), %(queue)s, %(task)s,
       {ARGUMENTS}, 1, 1, 'succeeded', statement_timestamp(), statement_timestamp(),
       'pgqueue_bench'
  FROM generate_series(1, %(rows)s) n
"""

# What stands beside the measured jobs, by the name of its shape.
SHAPES: dict[str, tuple[str, str]] = {
    "ready": (READY, QUEUE),
    "other_queue": (READY, QUEUE_ELSEWHERE),
    "scheduled": (SCHEDULED, QUEUE),
    "parked": (PARKED, QUEUE),
    "archived": (ARCHIVED, QUEUE),
}

# Locks: SHARE UPDATE EXCLUSIVE. What autovacuum would do at any moment: done now, it
# does not happen while something is measured.
TIDY = "VACUUM (ANALYZE) pgqueue_job, pgqueue_archived_job"

# Locks: none. Writes what a load has left to be written, likewise.
CHECKPOINT = "CHECKPOINT"

BASELINE, OTHER_SIDE = "the same drain on empty tables", "empty table"

# Drains *jobs* jobs.
Drained = Callable[[Scratch, Worker, int], Run]


class Backlog:
    """Product: beside the backlog. The other side: on empty tables."""

    def __init__(
        self,
        full: tuple[Scratch, Worker],
        empty: tuple[Scratch, Worker],
        drained: Drained,
    ) -> None:
        self._full = full
        self._empty = empty
        self._drained = drained

    def pair(self, jobs: int) -> Pair:
        """Return jobs per second, and the buffers of a claim."""
        full, _ = self._full
        with full.in_use():
            product = self._run(*self._full, jobs)
        empty, _ = self._empty
        empty.empty()
        return Pair(product, self._run(*self._empty, jobs))

    def _run(self, scratch: Scratch, worker: Worker, jobs: int) -> Run:
        tidy(worker.cursor)
        buffers = _claim_buffers(worker)
        run = self._drained(scratch, worker, jobs)
        return Run(run.values, {"claim_buffers": buffers})


def _claim_buffers(worker: Worker) -> float:
    """Return the pages that a claim of ten reads, of which nothing remains."""
    cursor = worker.cursor
    with cursor.connection.transaction(force_rollback=True):
        add_ready(cursor, task=batched.name, rows=CLAIM_LIMIT)
        explaining = gauges.Explaining(cursor)
        claim(
            cast("Cursor", explaining),  # It gives claim() no rows.
            queues=[QUEUE],
            worker="pgqueue bench",
            limit=CLAIM_LIMIT,
            lease=timedelta(minutes=1),
        )
    if explaining.rows != CLAIM_LIMIT:
        raise CommandError(f"A claim of {CLAIM_LIMIT} found {explaining.rows} jobs.")
    return explaining.buffers


def _beside(scratch: Scratch, worker: Worker, jobs: int) -> Run:
    """Drain jobs that come to rows which are none of theirs."""
    return drained(scratch, worker, batched, jobs)


def _of_many(scratch: Scratch, worker: Worker, jobs: int) -> Run:
    """
    Drain the first *jobs* jobs of a queue that may have many more.

    The queue is paused before and after. The time runs from the end of the pause until
    so many are archived, both by the server's clock.
    """
    cursor = worker.cursor
    add_ready(cursor, task=batched.name, rows=jobs)
    last_id = gauges.place_in_queue(cursor, QUEUE, jobs - 1)
    worker.rest()
    started = gauges.now(cursor)
    resume(cursor, QUEUE)
    wake(cursor, [QUEUE])
    worker.wait_while(lambda: gauges.is_live(cursor, last_id))
    _pause(worker)
    finished = gauges.finished_since(cursor, started)
    return Run([jobs / seconds_until(finished, started, jobs)])


def _pause(worker: Worker) -> None:
    cursor = worker.cursor
    pause(cursor, QUEUE, by="pgqueue bench")

    def runs() -> bool:
        wake(cursor, [UNKNOWN_QUEUE])
        return gauges.is_leased(cursor)

    worker.wait_while(runs)


def seconds_until(finished: Finished, started: datetime, count: int) -> float:
    """
    Return the seconds from *started* until *count* jobs were finished.

    Raises:
        ValueError: Fewer were.
    """
    done = 0
    for moment, here in finished:
        done += here
        if done >= count:
            return (moment - started).total_seconds()
    raise ValueError(f"{done} jobs are finished, {count} were expected")


def fill(cursor: Cursor, shape: str, *, task: str, rows: int) -> None:
    """
    Add *rows* rows of *shape*, and tidy up after it.

    Args:
        cursor: Of psycopg, in autocommit, in a scratch place.
        shape: A key of SHAPES.
        task: The name that the rows carry.
        rows: How many.

    Raises:
        ValueError: The cursor leads to no scratch place.
    """
    refuse_others(cursor)
    statement, queue = SHAPES[shape]
    cursor.execute(statement, {"queue": queue, "task": task, "rows": rows})
    tidy(cursor)
    # A role that may not leaves it to the server's own timer.
    with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
        cursor.execute(CHECKPOINT)


def add_ready(cursor: Cursor, *, task: str, rows: int) -> None:
    """Add *rows* jobs that are due now, in one commit."""
    refuse_others(cursor)
    cursor.execute(READY, {"queue": QUEUE, "task": task, "rows": rows})


def tidy(cursor: Cursor) -> None:
    """Vacuum and analyse the tables of the jobs and of the archive."""
    cursor.execute(TIDY)


def shape(name: str) -> Opener:
    """Return what opens both sides, with rows of a key of SHAPES on the first."""

    @contextmanager
    def opened(scratch: Scratch, plan: Plan) -> Iterator[Backlog]:
        same_queue = name == "ready"
        queues = () if same_queue else (QUEUE,)
        with ExitStack() as stack:
            full = stack.enter_context(scratch.another())
            with full.in_use():
                beside = stack.enter_context(Worker(full, threads=8, queues=queues))
            alone = stack.enter_context(Worker(scratch, threads=8, queues=queues))
            if same_queue:
                _pause(beside)
                _pause(alone)
                stack.callback(resume, alone.cursor, QUEUE)
            plan.say(f"backlog {name}: loading {plan.rows:,} rows")
            fill(beside.cursor, name, task=batched.name, rows=plan.rows)
            yield Backlog(
                (full, beside), (scratch, alone), _of_many if same_queue else _beside
            )

    return opened


BACKLOG = Measure(
    name="backlog",
    what="as drain, beside a backlog of each shape; the worst counts",
    unit="jobs/s",
    jobs=20_000,
    goals=(at_least(0.9), at_most("claim_buffers", CLAIM_BUFFERS_MAX, "pages")),
    baseline=BASELINE,
    other_side=OTHER_SIDE,
    parts={name: shape(name) for name in SHAPES},
)
