"""
drain: how fast worker processes run jobs that do nothing.

The worker is up and idle when the jobs commit, all at once: the time runs from that
commit until the last job has left the queue, so no start of an interpreter is in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import transaction

from django_pgqueue.management.bench import traced, yardstick
from django_pgqueue.management.bench.measure import (
    Measure,
    Opener,
    Plan,
    Run,
    Turns,
    at_least,
)
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import (
    batched,
    immediate,
    not_archived,
    nothing,
    payloads,
)
from django_pgqueue.management.bench.worker import Worker
from django_pgqueue.tasks.result import JobResult
from django_pgqueue.tasks.task import Task

# Enqueues jobs with these arguments, in this order.
Store = Callable[[list[dict[str, Any]]], list[JobResult[Any]]]


class Drain(Turns):
    """Product: a real worker. Yardstick: claim 100, delete by array, one thread."""

    def __init__(
        self,
        scratch: Scratch,
        connection: yardstick.Connection,
        worker: Worker,
        task: Task[Any, None],
    ) -> None:
        super().__init__(scratch)
        self._connection = connection
        self._worker = worker
        self._task = task

    def product(self, jobs: int) -> Run:
        """Return jobs per second."""
        return drained(self.scratch, self._worker, self._task, jobs)

    def yardstick(self, jobs: int) -> Run:
        """Return rows per second."""
        yardstick.bulk(self._connection, payloads(jobs))
        count, seconds = yardstick.drain(self._connection, nothing)
        return Run([count / seconds])


class DrainBeside(Turns):
    """A worker on one scratch place, and one of another kind on another place."""

    def __init__(
        self,
        scratch: Scratch,
        worker: Worker,
        other: Scratch,
        plain: Worker,
        store: Store = batched.bulk,
        store_plainly: Store = batched.bulk,
    ) -> None:
        super().__init__(scratch)
        self._worker = worker
        self._other = other
        self._plain = plain
        self._store = store
        self._store_plainly = store_plainly

    def product(self, jobs: int) -> Run:
        """Return jobs per second of the worker that is in question."""
        return drained(self.scratch, self._worker, batched, jobs, self._store)

    def yardstick(self, jobs: int) -> Run:
        """Return jobs per second of one plain process."""
        with self._other.in_use():
            self._other.empty()
            store = self._store_plainly
            return drained(self._other, self._plain, batched, jobs, store)


def drained(
    scratch: Scratch,
    worker: Worker,
    task: Task[Any, None],
    jobs: int,
    store: Store | None = None,
) -> Run:
    """
    Enqueue *jobs* jobs in one commit, and return how many are done per second.

    Args:
        scratch: Where they are.
        worker: Runs them.
        task: What they are of.
        jobs: How many.
        store: Enqueues them, instead of bulk().
    """
    items = payloads(jobs)
    worker.rest()
    committed_at: list[float] = []
    with transaction.atomic(using=scratch.alias):
        # Registered first, so it runs between the commit and the wake.
        transaction.on_commit(
            lambda: committed_at.append(time.monotonic()), using=scratch.alias
        )
        results = (store or task.bulk)(items)
    seconds = worker.wait_until_done(
        results[0].id,
        results[-1].id,
        since=committed_at[0],
        archived=task is not not_archived,
    )
    return Run([jobs / seconds])


def _with_worker(task: Task[Any, None], *, threads: int) -> Mapping[str, Opener]:
    @contextmanager
    def opened(scratch: Scratch, plan: Plan) -> Iterator[Drain]:
        with (
            scratch.connect() as connection,
            Worker(scratch, threads=threads) as worker,
        ):
            yield Drain(scratch, connection, worker, task)

    return {"": opened}


def _beside(*stores: Store, **options: Any) -> Opener:
    @contextmanager
    def opened(scratch: Scratch, plan: Plan) -> Iterator[DrainBeside]:
        with ExitStack() as stack:
            worker = Worker(scratch, threads=8, **options)
            stack.enter_context(worker)
            other = stack.enter_context(scratch.another())
            with other.in_use():
                plain = stack.enter_context(Worker(other, threads=8))
            yield DrainBeside(scratch, worker, other, plain, *stores)

    return opened


def _traced(sampled_in_hundred: int) -> Opener:
    return _beside(
        traced.in_requests(batched, sampled_in_hundred),
        traced.in_requests(batched, None),
        trace=traced.RECORDS,
    )


DRAIN = Measure(
    name="drain",
    what='one process, 8 threads, settle="batched", archive on',
    unit="jobs/s",
    jobs=20_000,
    goals=(at_least(0.8),),
    parts=_with_worker(batched, threads=8),
)

DRAIN_IMMEDIATE_16 = Measure(
    name="drain_immediate_16",
    what='one process, 16 threads, settle="immediate"',
    unit="jobs/s",
    jobs=10_000,
    goals=(at_least(0.25),),
    parts=_with_worker(immediate, threads=16),
)

DRAIN_IMMEDIATE_64 = Measure(
    name="drain_immediate_64",
    what='one process, 64 threads, settle="immediate"',
    unit="jobs/s",
    jobs=10_000,
    goals=(at_least(0.45),),
    parts=_with_worker(immediate, threads=64),
)

DRAIN_NO_ARCHIVE = Measure(
    name="drain_no_archive",
    what="as drain, with archive=False",
    unit="jobs/s",
    jobs=20_000,
    goals=(at_least(1.0),),
    parts=_with_worker(not_archived, threads=8),
)

DRAIN_TWO = Measure(
    name="drain_two",
    what="as drain, two processes beside one",
    unit="jobs/s",
    jobs=20_000,
    goals=(at_least(1.25),),
    baseline="one process of the product",
    other_side="one process",
    parts={"": _beside(processes=2)},
)

DRAIN_METRICS = Measure(
    name="drain_metrics",
    what="as drain, a process with --metrics beside one without",
    unit="jobs/s",
    jobs=20_000,
    goals=(at_least(0.97),),
    baseline="one process of the product",
    other_side="without",
    parts={"": _beside(metrics=True)},
)

DRAIN_TRACE = Measure(
    name="drain_trace",
    what='as drain, a process with PGQUEUE["TRACE"] beside one without',
    unit="jobs/s",
    jobs=20_000,
    goals=(at_least(0.97),),
    baseline="one process of the product",
    other_side="without",
    parts={
        "no_sdk": _beside(trace=traced.NO_SDK),
        "1%": _traced(1),
        "100%": _traced(100),
    },
    counted=("no_sdk", "1%"),
    needs=traced.SDK,
)
