"""
async: how fast one worker process runs jobs that wait, on its event loop.

With 1,000 slots and waits of 10 ms the slots would do for 100,000 a second, so what is
measured is what a job costs, and not how many can wait at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django_pgqueue.management.bench.drain import drained
from django_pgqueue.management.bench.measure import Goal, Measure, Plan, Run, Turns
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import payloads, waits
from django_pgqueue.management.bench.worker import Worker

SLOTS = 1_000

JOBS_PER_SECOND_MIN = 20_000


class Async(Turns):
    """Product: a real worker. Yardstick: the same coroutines, and no queue at all."""

    def __init__(self, scratch: Scratch, worker: Worker) -> None:
        super().__init__(scratch)
        self._worker = worker

    def product(self, jobs: int) -> Run:
        """Return jobs per second."""
        return drained(self.scratch, self._worker, waits, jobs)

    def yardstick(self, jobs: int) -> Run:
        """Return coroutines per second."""
        started = time.monotonic()
        asyncio.run(_run_all(jobs))
        return Run([jobs / (time.monotonic() - started)])


async def _run_all(jobs: int) -> None:
    slots = asyncio.Semaphore(SLOTS)

    async def run(payload: dict[str, object]) -> None:
        async with slots:
            await waits.function(**payload)

    await asyncio.gather(*map(run, payloads(jobs)))


@contextmanager
def _with_worker(scratch: Scratch, plan: Plan) -> Iterator[Async]:
    with Worker(scratch, threads=8, async_slots=SLOTS) as worker:
        yield Async(scratch, worker)


ASYNC = Measure(
    name="async",
    what=f'one process, {SLOTS:,} slots, tasks that wait 10 ms, settle="batched"',
    unit="jobs/s",
    jobs=20_000,
    goals=(Goal("median", JOBS_PER_SECOND_MIN, "jobs/s"),),
    baseline="asyncio with a semaphore, no queue",
    other_side="asyncio",
    parts={"": _with_worker},
)
