"""Latencies: from a COMMIT, or from the end of a job, to whoever waits for it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, pairwise
from statistics import quantiles
from types import ModuleType
from typing import Any
from unittest import mock

from django.db import transaction

from django_pgqueue.management import bench
from django_pgqueue.models import ArchivedJob, Job, Step
from django_pgqueue.tasks import pending, waiting
from django_pgqueue.tasks.canvas import chain, chord
from tests.benchmarks.measure import Opened, Pair, PairRun, measure, sides
from tests.benchmarks.measures import tasks
from tests.benchmarks.measures.tasks import LONG_SECONDS
from tests.benchmarks.processes import FailedError
from tests.benchmarks.scratch import Scratch, Worker, committed_at, payloads

Opening = Generator[PairRun, None, None]
Arrivals = Callable[[int], Iterator[dict[str, Any]]]

# Between two jobs: random, so that no timer of the worker falls into step with it, and
# above the interval in which wakes of one process are coalesced.
PAUSE_SECONDS = 0.03, 0.07

# Arrivals a second of latency_trickle, all for the same time: --jobs are those of all.
RATES = (20, 100, 500)

THREADS = 8

# Of latency_mixed: one long job, then so many short ones, more than the run can take.
SHORT = 99
LOAD_JOBS_PER_SECOND = 1.2 * THREADS / LONG_SECONDS * (1 + SHORT)
LOAD_JOBS_MIN = 1_000

# Of fair_latency: jobs of the one key, for each that is measured.
TURNS_JOBS_EACH = 2_500


def paced(jobs: int) -> Iterator[dict[str, Any]]:
    """Yield the arguments of jobs, with a random pause before each."""
    for item in payloads(jobs):
        time.sleep(random.uniform(*PAUSE_SECONDS))
        yield item


def trickling(jobs: int, *, per_second: int) -> Iterator[dict[str, Any]]:
    """Yield them at the moments of a Poisson process; one that is late, at once."""
    gaps = (random.expovariate(per_second) for _ in range(jobs))
    began = time.monotonic()
    for item, at in zip(payloads(jobs), accumulate(gaps), strict=True):
        time.sleep(max(began + at - time.monotonic(), 0.0))
        yield item


def enqueued(worker: Worker, items: Iterator[Any], task: Any) -> list[float]:
    """
    Enqueue a job whenever *items* yields; return milliseconds to the start of each.

    The clock is read right before COMMIT is sent, since a worker may well start before
    the producer has its answer.
    """
    commits_at = {}
    for item in items:
        with transaction.atomic():
            result = task.delay(**item)
            commits_at[result.id] = time.monotonic()
    for job_id in commits_at:
        worker.wait_while(partial(worker.value, bench.IS_LIVE, job_id))
    rows = ArchivedJob.objects.filter(pk__in=commits_at)
    started_at = dict(rows.values_list("pk", "result"))
    return [(started_at[each] - at) * 1_000 for each, at in commits_at.items()]


def beside_plain(arrivals: Arrivals = paced) -> Opened:
    """Return delay() to a real worker beside LISTEN and a claim loop."""

    def opened(scratch: Scratch) -> Opening:
        with scratch.worker() as worker, bench.consumer() as started_at:

            def product(jobs: int) -> list[float]:
                worker.rest()
                return enqueued(worker, arrivals(jobs), tasks.timed)

            def plain(jobs: int) -> list[float]:
                commits_at = dict(
                    bench.publish(scratch.plain, item) for item in arrivals(jobs)
                )
                worker.wait_while(lambda: not commits_at.keys() <= started_at.keys())
                return [(started_at[n] - at) * 1_000 for n, at in commits_at.items()]

            yield sides(scratch, product, plain)

    return opened


def trickle(per_second: int) -> Opened:
    """Return the same at random moments, with how late the latest are."""
    opened = beside_plain(partial(trickling, per_second=per_second))

    def cut(values: Any, percent: int) -> float:
        return quantiles(values, n=100, method="inclusive")[percent - 1]

    def with_cuts(scratch: Scratch) -> Opening:
        with contextmanager(opened)(scratch) as plain_pair:

            def pair(jobs: int) -> Pair:
                both = plain_pair(max(jobs * per_second // sum(RATES), 2))
                p99 = cut(both.product, 99)
                also = {
                    "p99/p50": p99 / cut(both.product, 50),
                    "p99/plain": p99 / cut(both.other, 99),
                }
                return Pair(both.product, both.other, also)

            yield pair

    return with_cuts


def beside_idle(
    load: Callable[[int], object] | None, task: Any, idle_task: Any
) -> Opened:
    """Return jobs on a worker with a load beside jobs on the same worker, idle."""

    def opened(scratch: Scratch) -> Opening:
        with scratch.worker(threads=THREADS) as worker:

            def product(jobs: int) -> list[float]:
                worker.rest()
                if load is None:
                    return enqueued(worker, paced(jobs), task)
                load(jobs)
                values = enqueued(worker, paced(jobs), task)
                # What waits is deleted; what runs comes to its end.
                if not Job.objects.filter(leased_by=None).delete()[0]:
                    raise FailedError("The load ran dry: nothing was measured beside.")
                worker.wait_while(Job.objects.exists)
                return values

            def idle(jobs: int) -> list[float]:
                worker.rest()
                return enqueued(worker, paced(jobs), idle_task)

            yield sides(scratch, product, idle)

    return opened


def mixed_load(jobs: int) -> None:
    """Enqueue long jobs and short ones for longer than the run takes."""
    seconds = jobs * PAUSE_SECONDS[1]
    items = payloads(1 + SHORT)
    with transaction.atomic():
        for _ in range(int(LOAD_JOBS_MIN + seconds * LOAD_JOBS_PER_SECOND) // 100):
            tasks.long.delay(**items[0])
            tasks.immediate.bulk(items[1:])


def hears(module: ModuleType, latencies: Callable[[int], list[float]]) -> Opened:
    """Return waits with a listener beside waits that look again and again."""

    def opened(scratch: Scratch) -> Opening:
        with scratch.worker(threads=THREADS) as worker:

            def product(jobs: int) -> list[float]:
                worker.rest()
                return latencies(jobs)

            def looking(jobs: int) -> list[float]:
                worker.rest()
                with mock.patch.object(module, "ear", return_value=None):
                    return latencies(jobs)

            yield sides(scratch, product, looking)

    return opened


def got(jobs: int) -> list[float]:
    """Return milliseconds from the end of each job to the return of get()."""
    values = []
    for item in payloads(jobs):
        ended_at = tasks.tells_end.delay(**item).get(timeout="1m")
        values.append((time.monotonic() - ended_at) * 1_000)
    return values


def streamed(jobs: int) -> list[float]:
    """Return milliseconds from emit() of each value to its reader."""
    stream = tasks.emits_times.delay(jobs).stream(timeout="5m")
    return [(time.monotonic() - part.value) * 1_000 for part in stream]


def chains(scratch: Scratch) -> Opening:
    """From the start of a step to that of the next; beside delay(), idle worker."""
    with scratch.worker(threads=THREADS) as worker:

        def steps(jobs: int) -> list[float]:
            worker.rest()
            result = chain(*(tasks.timed.si(**item) for item in payloads(jobs))).delay()
            last = last_step(result.id)
            worker.wait_while(lambda: not worker.value(bench.SUCCEEDED, last, last))
            rows = ArchivedJob.objects.order_by("id").values_list("result", flat=True)
            return [(after - before) * 1_000 for before, after in pairwise(rows)]

        def single(jobs: int) -> list[float]:
            worker.rest()
            return enqueued(worker, paced(jobs), tasks.timed)

        yield sides(scratch, steps, single)


def chords(scratch: Scratch) -> Opening:
    """Members a second from the commit to the end of the body; beside as many jobs."""
    with scratch.worker(threads=THREADS) as worker:

        def members(jobs: int) -> float:
            canvas = chord(
                [tasks.batched.si(**item) for item in payloads(jobs)],
                tasks.batched.si(order_id=jobs, note=""),
            )
            worker.rest()
            with committed_at() as at:
                result = canvas.delay()
            body = last_step(result.id)
            worker.wait_while(lambda: not worker.value(bench.SUCCEEDED, body, body))
            return jobs / (time.monotonic() - at[0])

        yield sides(
            scratch, members, lambda jobs: worker.drained(tasks.batched.bulk, jobs)
        )


def last_step(workflow_id: Any) -> int:
    """Return the id of the job of a workflow's last step."""
    steps = Step.objects.filter(workflow_id=workflow_id)
    return int(steps.values_list("id", flat=True).order_by("-id")[0])


measure(
    "latency",
    "COMMIT to the first line of the task, idle worker, 8 threads",
    "p50 <= 1.2 ms",
    "p99 <= 4 ms",
    parts={"": beside_plain()},
    unit="ms",
    jobs=100,
    warm_up=10,
)
measure(
    "latency_mixed",
    "an urgent job on a worker busy with short and long ones",
    "p99 <= 150 ms",
    parts={"": beside_idle(mixed_load, *[tasks.timed.using(priority=10)] * 2)},
    unit="ms",
    jobs=100,
    warm_up=10,
    beside="the same worker, idle",
)
measure(
    "latency_trickle",
    "COMMIT to the first line of the task, at random moments",
    "p99/p50 <= 3",
    "p99/plain <= 2.5",
    parts={f"{rate}/s": trickle(rate) for rate in RATES},
    unit="ms",
    jobs=10_000,
    jobs_min=sum(RATES) // 2,
    warm_up=sum(RATES) // 2,
)
measure(
    "lanes_latency",
    "COMMIT to the first line of a job of a new key, idle worker",
    "p50 <= 5 ms",
    "p99 <= 50 ms",
    parts={"": beside_idle(None, tasks.timed_in_lane, tasks.timed)},
    unit="ms",
    jobs=100,
    warm_up=10,
    beside="the same jobs without a lane",
)
measure(
    "fair_latency",
    "a job of another key, on a worker busy with 100,000 of one",
    "p99 <= 100 ms",
    parts={
        "": beside_idle(
            lambda jobs: tasks.fair.bulk(payloads(jobs * TURNS_JOBS_EACH)),
            tasks.timed_in_turn,
            tasks.timed,
        )
    },
    unit="ms",
    jobs=40,
    warm_up=2,
    beside="an idle worker",
)
measure(
    "results",
    "the end of a job to the return of get() in another process",
    "p50 <= 5 ms",
    parts={"": hears(waiting, got)},
    unit="ms",
    jobs=20,
    warm_up=10,
    beside="the same, where nothing can be heard",
)
measure(
    "stream",
    "a value that a running job emits to its reader in another process",
    "p50 <= 100 ms",
    parts={"": hears(pending, streamed)},
    unit="ms",
    jobs=200,
    warm_up=20,
    beside="the same, where nothing can be heard",
)
measure(
    "workflows_chain",
    'start of a step to start of the next one, settle="immediate"',
    "ratio <= 1.5",
    parts={"": chains},
    unit="ms",
    jobs=100,
    jobs_min=3,
    warm_up=10,
    beside="delay() on an idle worker",
)
measure(
    "workflows_chord",
    "a chord of members that do nothing, beside as many jobs",
    "ratio >= 0.77",
    parts={"": chords},
    jobs=10_000,
    beside="jobs of no workflow",
)
