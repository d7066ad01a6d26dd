"""pgqueue_bench: how fast the queue is on this server, beside plain psycopg."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django.db
from django.core.management.base import BaseCommand, CommandError

from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.management.bench.bulk import BULK
from django_pgqueue.management.bench.drain import DRAIN, DRAIN_IMMEDIATE_16
from django_pgqueue.management.bench.enqueue import ENQUEUE
from django_pgqueue.management.bench.latency import LATENCY
from django_pgqueue.management.bench.measure import Measure, Pairs, run_pairs
from django_pgqueue.management.bench.progress import progress
from django_pgqueue.management.bench.scratch import scratch_database
from django_pgqueue.management.bench.table import table
from django_pgqueue.management.commands.pgqueue_worker import whole_number

MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (ENQUEUE, BULK, DRAIN, DRAIN_IMMEDIATE_16, LATENCY)
}
ALL = "all"

RUNS_DEFAULT, RUNS_MAX = 5, 1_000
JOBS_MIN, JOBS_MAX = 10, 10_000_000

EXIT_INTERRUPTED = 130

EPILOG = f"""
Measures:
{chr(10).join(f"  {m.name:<20}{m.what} ({m.jobs:,} jobs)" for m in MEASURES.values())}

Everything happens in a database that is made on the configured server and dropped at
the end. Each run of the product is followed by one of the yardstick: the same with
plain psycopg and nothing else. Other work on the machine makes both slower; the ratio
between them is what holds. Progress goes to standard error.

Exit status: 0 measured, 1 it could not be, 2 wrong command line, 130 interrupted.
"""


class Command(BaseCommand):
    """Runs measures in a scratch database and prints the figures."""

    help = "Measure the queue on the configured server, beside plain psycopg."
    requires_system_checks: Any = []

    def create_parser(self, *args: Any, **kwargs: Any) -> Any:
        """Keep the epilog's lines as they are."""
        kwargs["formatter_class"] = argparse.RawDescriptionHelpFormatter
        return super().create_parser(*args, epilog=EPILOG, **kwargs)

    def add_arguments(self, parser: Any) -> None:
        """Declare what can be measured, and how often."""
        parser.add_argument(
            "measures",
            nargs="*",
            type=measure_name,
            metavar="MEASURE",
            help=f"{', '.join(MEASURES)}, or {ALL} (the default).",
        )
        parser.add_argument(
            "--runs",
            type=whole_number("--runs", 1, RUNS_MAX),
            default=RUNS_DEFAULT,
            metavar="N",
            help=f"Pairs of runs for each measure (default {RUNS_DEFAULT}).",
        )
        parser.add_argument(
            "--jobs",
            type=whole_number("--jobs", JOBS_MIN, JOBS_MAX),
            metavar="N",
            help="Jobs in each run (default: depends on the measure).",
        )
        parser.add_argument(
            "--json",
            action="store_true",
            help="Print one JSON object, with a key for each measure.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Measure, and print."""
        asked = options["measures"] or [ALL]
        names = list(MEASURES) if ALL in asked else list(dict.fromkeys(asked))
        try:
            with _signals_as_interrupts():
                measured = self._measure(names, options["runs"], options["jobs"])
        except KeyboardInterrupt:
            self.stderr.write("Interrupted; the database was dropped.", style_func=str)
            sys.exit(EXIT_INTERRUPTED)
        except (PgQueueError, django.db.Error) as error:
            raise CommandError(str(error).strip()) from error
        if options["json"]:
            told = {pairs.measure.name: pairs.as_json() for pairs in measured}
            self.stdout.write(json.dumps(told))
        else:
            self.stdout.write(table(measured))

    def _measure(self, names: list[str], runs: int, jobs: int | None) -> list[Pairs]:
        with scratch_database() as scratch:
            # On standard error, as all that is not the result.
            self.stderr.write(f"Measuring in database {scratch.name}.", style_func=str)
            with progress(len(names) * runs, runs) as tell:
                return [
                    run_pairs(
                        measure,
                        scratch,
                        jobs=jobs or measure.jobs,
                        runs=runs,
                        tell=tell,
                    )
                    for measure in map(MEASURES.__getitem__, names)
                ]


def measure_name(text: str) -> str:
    """Read the name of a measure."""
    if text != ALL and text not in MEASURES:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no measure; there are {', '.join(MEASURES)} and {ALL}"
        )
    return text


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """End like Ctrl+C, by way of the clean-up, when told to stop or hung up on."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # SIGINT too: a shell that starts this in the background has it ignored.
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
