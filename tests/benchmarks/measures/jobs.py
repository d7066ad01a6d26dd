"""Rates of jobs: to enqueue them, and to run jobs that do nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import ExitStack
from functools import partial
from typing import Any

from django_pgqueue.management import bench
from django_pgqueue.postgres import wake
from tests.benchmarks.measure import Opened, PairRun, measure, sides
from tests.benchmarks.measures import tasks
from tests.benchmarks.scratch import Scratch, payloads

Opening = Generator[PairRun, None, None]

PRODUCERS = 16


def enqueues(scratch: Scratch) -> Opening:
    def product(jobs: int) -> float:
        items = payloads(jobs)
        started = time.perf_counter()
        for item in items:
            tasks.immediate.delay(**item)
        return jobs / (time.perf_counter() - started)

    def plainly(jobs: int) -> float:
        items = payloads(jobs)
        started = time.perf_counter()
        for item in items:
            bench.insert(scratch.plain, item)
        return jobs / (time.perf_counter() - started)

    yield sides(scratch, product, plainly)


def bulk(scratch: Scratch) -> Opening:
    def product(jobs: int) -> float:
        items = payloads(jobs)
        started = time.perf_counter()
        tasks.immediate.bulk(items)
        return jobs / (time.perf_counter() - started)

    def plainly(jobs: int) -> float:
        items = payloads(jobs)
        started = time.perf_counter()
        bench.bulk(scratch.plain, items)
        return jobs / (time.perf_counter() - started)

    yield sides(scratch, product, plainly)


def contend(scratch: Scratch) -> Opening:
    """Processes as a web server has them, each in a loop, while somebody listens."""
    with ExitStack() as stack:
        listening = stack.enter_context(scratch.connect()).cursor()
        wake.listen(listening, [wake.channel(listening)])
        producers = [stack.enter_context(scratch.producer()) for _ in range(PRODUCERS)]

        def together(jobs: int, *, wakes: bool) -> float:
            each = max(jobs // PRODUCERS, 1)
            started = time.perf_counter()
            for producer in producers:
                producer.ask("transactions", 1, each, {"wakes": wakes})
            for producer in producers:
                producer.answer()
            return each * PRODUCERS / (time.perf_counter() - started)

        yield sides(
            scratch, partial(together, wakes=True), partial(together, wakes=False)
        )


def plainly_drained(scratch: Scratch, jobs: int) -> float:
    """Claim 100, call the function, delete by array, in one thread."""
    bench.bulk(scratch.plain, payloads(jobs))
    started = time.perf_counter()
    bench.drain(scratch.plain, lambda row_id, payload: None)
    return jobs / (time.perf_counter() - started)


def drains(task: Any, threads: int) -> Opened:
    def opened(scratch: Scratch) -> Opening:
        archived = task is not tasks.not_archived
        with scratch.worker(threads=threads) as worker:
            yield sides(
                scratch,
                lambda jobs: worker.drained(task.bulk, jobs, archived=archived),
                partial(plainly_drained, scratch),
            )

    return opened


def drains_beside(
    *options: str, sampled: int | None = None, **variables: str
) -> Opened:
    """Return a drain by a worker of one queue, beside a plain worker of another."""

    def opened(scratch: Scratch) -> Opening:
        one, other = (tasks.batched.using(queue=name) for name in ("one", "other"))
        with (
            scratch.worker("--queues=one", *options) as worker,
            scratch.worker("--queues=other") as plain,
        ):
            yield sides(
                scratch,
                lambda jobs: worker.drained(one.bulk, jobs),
                lambda jobs: plain.drained(other.bulk, jobs),
            )

    return opened


def runs_async(scratch: Scratch) -> Opening:
    """Beside the same coroutines behind a semaphore, and no queue at all."""
    slots_count = 1_000

    async def run_all(jobs: int) -> None:
        slots = asyncio.Semaphore(slots_count)

        async def run(item: dict[str, Any]) -> None:
            async with slots:
                await tasks.waits.function(**item)

        await asyncio.gather(*map(run, payloads(jobs)))

    def plainly(jobs: int) -> float:
        started = time.monotonic()
        asyncio.run(run_all(jobs))
        return jobs / (time.monotonic() - started)

    with scratch.worker(f"--async-slots={slots_count}") as worker:
        yield sides(
            scratch, lambda jobs: worker.drained(tasks.waits.bulk, jobs), plainly
        )


def drains_of(task: Any, free: Any, processes: int) -> Opened:
    """Return a drain of one task's jobs beside those of another, by the same worker."""

    def opened(scratch: Scratch) -> Opening:
        with scratch.worker(f"--processes={processes}") as worker:
            yield sides(
                scratch,
                lambda jobs: worker.drained(task.bulk, jobs),
                lambda jobs: worker.drained(free.bulk, jobs),
            )

    return opened


measure(
    "enqueue",
    "delay() one by one, a commit each",
    "ratio >= 0.6",
    parts={"": enqueues},
    jobs=2_000,
)
measure(
    "bulk",
    "bulk(), all in one call",
    "ratio >= 0.9",
    parts={"": bulk},
    jobs=10_000,
)
measure(
    "contend",
    f"{PRODUCERS} processes, each atomic() and delay() in a loop",
    "ratio >= 0.85",
    parts={"": contend},
    unit="tx/s",
    jobs=4_800,
    warm_up=800,
    beside="the same transactions without a wake",
)
measure(
    "drain",
    'one process, 8 threads, settle="batched", archive on',
    "ratio >= 0.8",
    parts={"": drains(tasks.batched, 8)},
)
for _threads, _goal in ((16, 0.25), (64, 0.45)):
    measure(
        f"drain_immediate_{_threads}",
        f'one process, {_threads} threads, settle="immediate"',
        f"ratio >= {_goal}",
        parts={"": drains(tasks.immediate, _threads)},
        jobs=10_000,
    )
measure(
    "drain_no_archive",
    "as drain, with archive=False",
    "ratio >= 1",
    parts={"": drains(tasks.not_archived, 8)},
)
measure(
    "drain_two",
    "as drain, two processes beside one",
    "ratio >= 1.25",
    parts={"": drains_beside("--processes=2")},
    beside="one process of the product",
)
measure(
    "drain_metrics",
    "as drain, a process with --metrics beside one without",
    "ratio >= 0.97",
    parts={"": drains_beside("--metrics", "--health-port=0")},
    beside="one process of the product",
    needs="prometheus_client",
)
measure(
    "async",
    'one process, 1,000 slots, tasks that wait 10 ms, settle="batched"',
    "median >= 20,000 jobs/s",
    parts={"": runs_async},
    beside="asyncio with a semaphore, no queue",
)
for _name, _what, _task in (
    ("lanes_order", "groups of 1,000 keys", tasks.in_order),
    ("lanes_limit", "limits of 5, by 1,000 keys", tasks.limited),
):
    measure(
        _name,
        f"two processes, 8 threads each, {_what}",
        "median >= 3,000 jobs/s",
        parts={"": drains_of(_task, tasks.batched, 2)},
        jobs=100_000,
        beside="the same jobs without a lane",
    )
measure(
    "fair_drain",
    "one process, 8 threads, all jobs of one key that takes turns",
    "ratio >= 0.7",
    parts={"": drains_of(tasks.fair, tasks.batched, 1)},
    jobs=100_000,
    beside="the same jobs without a lane",
)
