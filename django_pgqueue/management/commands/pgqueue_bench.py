"""pgqueue_bench: how fast the queue is on this server, beside plain psycopg."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from statistics import median, quantiles
from typing import Any

import django.db
import psycopg
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.management import bench
from django_pgqueue.management.bench import Connection
from django_pgqueue.management.cli.words import whole_number
from django_pgqueue.tasks.declare import task

RUNS_DEFAULT, RUNS_MAX = 5, 1_000
JOBS_MIN, JOBS_MAX = 10, 10_000_000

# Between two jobs of latency: random, so that no timer of the worker falls into step
# with it, and longer than the interval in which wakes of one process are coalesced.
PAUSE_SECONDS = 0.03, 0.07

EXIT_INTERRUPTED = 130

# With it, the arguments of a job take about 100 bytes as JSON.
NOTE = "x" * 72

# The rate of a run in jobs per second, or a latency in milliseconds for each job.
Values = list[float]

# Runs so many jobs, of the product or of the yardstick.
Side = Callable[[int], Values]


@task(settle="batched", name="pgqueue_bench.batched")
def batched(order_id: int, note: str) -> None:
    """Do nothing; the thread goes on while the ack is written."""


@task(settle="immediate", name="pgqueue_bench.tells_time")
def tells_time(order_id: int, note: str) -> float:
    """Return when it started, by the monotonic clock of the machine."""
    return time.monotonic()


def payloads(jobs: int, pause: tuple[float, float] = (0, 0)) -> Iterator[Any]:
    """Yield the arguments of jobs, with a random pause before each."""
    for number in range(jobs):
        time.sleep(random.uniform(*pause))
        yield {"order_id": number, "note": NOTE}


def rate(jobs: int, run: Callable[[], object]) -> Values:
    """Return the jobs per second of *run*."""
    started = time.perf_counter()
    run()
    return [jobs / (time.perf_counter() - started)]


@contextmanager
def enqueue(plain: Connection) -> Iterator[tuple[Side, Side]]:
    """Product: delay(), a commit each. Yardstick: insert and notify in one."""

    def product(jobs: int) -> Values:
        items = list(payloads(jobs))
        return rate(jobs, lambda: [tells_time.delay(**item) for item in items])

    def yardstick(jobs: int) -> Values:
        items = list(payloads(jobs))
        return rate(jobs, lambda: [bench.insert(plain, item) for item in items])

    yield product, yardstick


@contextmanager
def drain(plain: Connection) -> Iterator[tuple[Side, Side]]:
    """Product: a real worker. Yardstick: claim 100, delete by array, one thread."""

    def product(jobs: int) -> Values:
        watch.rest()
        committed_at: list[float] = []
        with transaction.atomic(using=alias):
            # Registered first, so it runs between the commit and the wake.
            transaction.on_commit(
                lambda: committed_at.append(time.monotonic()), using=alias
            )
            ids = [result.id for result in batched.bulk(list(payloads(jobs)))]
        watch.wait_until_done(ids)
        return [jobs / (time.monotonic() - committed_at[0])]

    def yardstick(jobs: int) -> Values:
        bench.bulk(plain, payloads(jobs))
        return rate(jobs, lambda: bench.drain(plain, lambda row_id, payload: None))

    alias = get_settings().database
    with bench.worker() as watch:
        yield product, yardstick


@contextmanager
def latency(plain: Connection) -> Iterator[tuple[Side, Side]]:
    """
    Product: delay() to a real worker. Yardstick: LISTEN and a claim loop.

    The clock is read right before COMMIT is sent, since a worker may well start before
    the producer has its answer. All processes of the machine share it.
    """

    def delay(item: Any) -> tuple[int, float]:
        with transaction.atomic(using=get_settings().database):
            return tells_time.delay(**item).id, time.monotonic()

    def product(jobs: int) -> Values:
        watch.rest()
        commits_at = dict(map(delay, payloads(jobs, PAUSE_SECONDS)))
        watch.wait_until_done(list(commits_at))
        return since(commits_at, bench.results(plain))

    def yardstick(jobs: int) -> Values:
        items = payloads(jobs, PAUSE_SECONDS)
        commits_at = dict(bench.publish(plain, item) for item in items)
        watch.wait_while(lambda: not commits_at.keys() <= started_at.keys())
        return since(commits_at, started_at)

    with bench.worker() as watch, bench.consumer() as started_at:
        yield product, yardstick


def since(commits_at: dict[int, float], started_at: dict[int, float]) -> Values:
    """Return the milliseconds from the commit of each job to its start."""
    return [(started_at[each] - at) * 1_000 for each, at in commits_at.items()]


Opened = Callable[[Connection], AbstractContextManager[tuple[Side, Side]]]

# By name: the sides, the unit, and the jobs of a run unless --jobs says otherwise.
MEASURES: dict[str, tuple[Opened, str, int]] = {
    "enqueue": (enqueue, "jobs/s", 2_000),
    "drain": (drain, "jobs/s", 20_000),
    "latency": (latency, "ms", 100),
}


class Command(BaseCommand):
    """Runs measures in a scratch database and prints the figures."""

    help = "Measure the queue on the configured server, beside plain psycopg."
    requires_system_checks: Any = []

    def add_arguments(self, parser: Any) -> None:
        """Declare what can be measured, and how often."""
        add = parser.add_argument
        add(
            "measures",
            nargs="*",
            default="all",
            choices=[*MEASURES, "all"],
            metavar="MEASURE",
            help="enqueue: delay() one by one. drain: one worker process with 8 "
            "threads. latency: COMMIT to the first line of the task. Default: all.",
        )
        runs = f"Pairs of runs for each measure (default {RUNS_DEFAULT})."
        jobs = "Jobs in each run (default: depends on the measure)."
        read_jobs = whole_number(JOBS_MAX, least=JOBS_MIN)
        add("--runs", type=whole_number(RUNS_MAX), default=RUNS_DEFAULT, help=runs)
        add("--jobs", type=read_jobs, help=jobs)
        add("--json", action="store_true", help="Print one JSON object.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Measure, and print."""
        names = MEASURES if "all" in options["measures"] else options["measures"]
        runs, jobs = options["runs"], options["jobs"]
        try:
            with (
                bench.signals_as_interrupts(),
                bench.scratch_database() as database,
                bench.connect_plain() as plain,
            ):
                self._say(f"Measuring in database {database}.")
                measured = {
                    name: self._measure(name, plain, runs, jobs) for name in names
                }
        except KeyboardInterrupt:
            self._say("Interrupted; the database was dropped.")
            sys.exit(EXIT_INTERRUPTED)
        except (PgQueueError, django.db.Error, psycopg.Error) as error:
            raise CommandError(str(error).strip()) from error
        self.stdout.write(json.dumps(measured) if options["json"] else table(measured))

    def _measure(
        self, name: str, plain: Connection, runs: int, jobs: int | None
    ) -> dict[str, Any]:
        opened, unit, usual = MEASURES[name]
        jobs = jobs or usual
        pairs: list[list[Values]] = []
        with opened(plain) as sides:
            for run in range(runs + 1):
                pair = []
                for side in sides:
                    bench.empty(plain)
                    pair.append(side(jobs if run else min(jobs, usual // 10)))
                if not run:  # It opened connections and warmed up code and plans.
                    continue
                pairs.append(pair)
                ours, plainly = (shown(median(side)) for side in pair)
                self._say(f"{name} {run}/{runs}: {ours} {unit}, yardstick {plainly}")
        product, yardstick = (list(chain(*side)) for side in zip(*pairs, strict=True))
        # The two of a pair ran one after the other, so what slows the machine for a
        # minute slows both: this is not the ratio of the medians.
        ratios = [median(one) / median(other) for one, other in pairs]
        return {
            "product": summary(product, unit),
            "yardstick": summary(yardstick, unit),
            "ratio": round(median(ratios), 3),
            "jobs": jobs,
            "runs": runs,
        }

    def _say(self, line: str) -> None:
        # On standard error, as all that is not the result.
        self.stderr.write(line, style_func=str)


def summary(values: Values, unit: str) -> dict[str, Any]:
    """Return the figures of one side."""
    figures = {"median": median(values), "min": min(values), "max": max(values)}
    if unit == "ms":
        figures["p99"] = quantiles(values, n=100, method="inclusive")[98]
    return {**{name: round(figures[name], 3) for name in figures}, "unit": unit}


def table(measured: dict[str, Any]) -> str:
    """Return the figures for people."""
    columns = ("median", "min", "max", "p99")
    rows = [("", "", *columns, "unit", "ratio")]
    for name, told in measured.items():
        for side, ratio in ("product", f"{told['ratio']:.2f}"), ("yardstick", ""):
            cells = [shown(told[side].get(column)) for column in columns]
            rows.append((name, side, *cells, told[side]["unit"], ratio))
    return "\n".join("".join(f"{cell:>11}" for cell in row) for row in rows)


def shown(value: float | None) -> str:
    """Return a figure for people: no more digits than it can mean."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
