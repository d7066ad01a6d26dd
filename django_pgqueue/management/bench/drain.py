"""
drain: how fast one worker process runs jobs that do nothing, the archive on.

The worker is up and idle when the jobs commit, all at once: the time runs from that
commit until the last job has left the queue, so no start of an interpreter is in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from django.db import transaction

from django_pgqueue.management.bench.measure import Measure
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import (
    batched,
    immediate,
    nothing,
    payloads,
)
from django_pgqueue.management.bench.worker import Worker
from django_pgqueue.postgres import yardstick
from django_pgqueue.tasks.task import Task


class Drain:
    """Product: a real worker. Yardstick: claim 100, delete by array, one thread."""

    def __init__(
        self,
        scratch: Scratch,
        connection: yardstick.Connection,
        worker: Worker,
        task: Task[Any, None],
    ) -> None:
        self._scratch = scratch
        self._connection = connection
        self._worker = worker
        self._task = task

    def product(self, jobs: int) -> list[float]:
        """Return jobs per second."""
        self._worker.rest()
        alias = self._scratch.alias
        committed_at: list[float] = []
        with transaction.atomic(using=alias):
            # Registered first, so it runs between the commit and the wake.
            transaction.on_commit(
                lambda: committed_at.append(time.monotonic()), using=alias
            )
            results = self._task.bulk(payloads(jobs))
        done_at = self._worker.wait_until_done([result.id for result in results])
        return [jobs / (done_at - committed_at[0])]

    def yardstick(self, jobs: int) -> list[float]:
        """Return rows per second."""
        yardstick.bulk(self._connection, payloads(jobs))
        count, seconds = yardstick.drain(self._connection, nothing)
        return [count / seconds]


def _opener(
    task: Task[Any, None], *, threads: int
) -> Callable[[Scratch], AbstractContextManager[Drain]]:
    @contextmanager
    def open_drain(scratch: Scratch) -> Iterator[Drain]:
        with (
            scratch.connect() as connection,
            Worker(scratch, threads=threads) as worker,
        ):
            yield Drain(scratch, connection, worker, task)

    return open_drain


DRAIN = Measure(
    name="drain",
    what='one worker process, 8 threads, settle="batched"',
    unit="jobs/s",
    jobs=20_000,
    open=_opener(batched, threads=8),
)

DRAIN_IMMEDIATE_16 = Measure(
    name="drain_immediate_16",
    what='one worker process, 16 threads, settle="immediate"',
    unit="jobs/s",
    jobs=10_000,
    open=_opener(immediate, threads=16),
)
