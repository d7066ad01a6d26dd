"""
backlog: whether a million other rows make a drain slower.

Each shape has a scratch place of its own, filled once; the other side is the same
drain on empty tables, run by run. The measure is as good as its worst shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from django.core.management.base import CommandError

from django_pgqueue.management.bench.drain import drained
from django_pgqueue.management.bench.goal import at_least, at_most
from django_pgqueue.management.bench.measure import Measure, Opener, Pair, Plan, Run
from django_pgqueue.management.bench.pace import seconds_until
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import batched
from django_pgqueue.management.bench.worker import Worker
from django_pgqueue.postgres import backlogs, gauges
from django_pgqueue.postgres.backlogs import QUEUE
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
        backlogs.tidy(worker.cursor)
        buffers = _claim_buffers(worker)
        run = self._drained(scratch, worker, jobs)
        return Run(run.values, {"claim_buffers": buffers})


def _claim_buffers(worker: Worker) -> float:
    """Return the pages that a claim of ten reads, of which nothing remains."""
    cursor = worker.cursor
    with cursor.connection.transaction(force_rollback=True):
        backlogs.add_ready(cursor, task=batched.name, rows=CLAIM_LIMIT)
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
    backlogs.add_ready(cursor, task=batched.name, rows=jobs)
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


def _shape(name: str) -> Opener:
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
            backlogs.fill(beside.cursor, name, task=batched.name, rows=plan.rows)
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
    baseline="the same drain on empty tables",
    other_side="empty table",
    parts={name: _shape(name) for name in backlogs.SHAPES},
)
