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
from django_pgqueue.management.bench.embedded import server_if_none
from django_pgqueue.management.bench.measure import Plan, Result, run_measure
from django_pgqueue.management.bench.measures import ALL, MEASURES, chosen
from django_pgqueue.management.bench.progress import progress
from django_pgqueue.management.bench.scratch import END_SIGNALS, scratch_place
from django_pgqueue.management.bench.table import table
from django_pgqueue.management.commands.pgqueue_worker import whole_number

RUNS_DEFAULT, RUNS_MAX = 5, 1_000
JOBS_MIN, JOBS_MAX = 10, 10_000_000
ROWS_DEFAULT, ROWS_MIN, ROWS_MAX = 1_000_000, 100, 100_000_000
SECONDS_DEFAULT, SECONDS_MAX = 20, 3_600

EXIT_INTERRUPTED = 130


def measure_lines() -> str:
    """Return a line for each measure."""
    return "\n".join(f"  {name:<19} {m.what}" for name, m in MEASURES.items())


EPILOG = f"""
Measures:
{measure_lines()}

Everything happens in a database that is made on the configured server and dropped at
the end; with --schema in a schema of the configured database. Where no database is
configured, the embedded server is used. Each run of the product is followed by one of
what it is compared with, mostly the same with plain psycopg and nothing else. Other
work on the machine makes both slower; the ratio between them is what holds. Progress
goes to standard error.

Exit status: 0 measured, 1 it could not be, 2 wrong command line, 130 interrupted.
"""


class Command(BaseCommand):
    """Runs measures in a scratch place and prints the figures."""

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
            type=measure_names,
            metavar="MEASURE",
            help=f"Names as below, patterns such as 'drain*', or {ALL} (the default).",
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
            "--rows",
            type=whole_number("--rows", ROWS_MIN, ROWS_MAX),
            default=ROWS_DEFAULT,
            metavar="N",
            help=f"Rows of each backlog (default {ROWS_DEFAULT:,}).",
        )
        parser.add_argument(
            "--seconds",
            type=whole_number("--seconds", 1, SECONDS_MAX),
            default=SECONDS_DEFAULT,
            metavar="N",
            help=f"Seconds of each run of idle (default {SECONDS_DEFAULT}).",
        )
        parser.add_argument(
            "--schema",
            action="store_true",
            help="Measure in a schema of the configured database, for a role that may "
            "not create databases.",
        )
        parser.add_argument(
            "--json",
            action="store_true",
            help="Print one JSON object, with a key for each measure.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Measure, and print."""
        asked = options["measures"] or [chosen(ALL)]
        names = list(dict.fromkeys(name for names in asked for name in names))
        try:
            with _signals_as_interrupts():
                results = self._measure(names, options)
        except KeyboardInterrupt:
            self._say("Interrupted; what was made for it is dropped.")
            sys.exit(EXIT_INTERRUPTED)
        except (PgQueueError, django.db.Error) as error:
            raise CommandError(str(error).strip()) from error
        if options["json"]:
            told = {result.measure.name: result.as_json() for result in results}
            self.stdout.write(json.dumps(told))
        else:
            self.stdout.write(table(results))

    def _measure(self, names: list[str], options: dict[str, Any]) -> list[Result]:
        measures = [MEASURES[name] for name in names]
        runs: int = options["runs"]
        parts = sum(len(measure.parts) for measure in measures)
        with (
            server_if_none(self._say) as server,
            scratch_place(is_schema=options["schema"], server=server) as scratch,
        ):
            place = scratch.place
            self._say(f"Measuring in {place.kind} {place.name}.")
            with progress(parts * runs, runs) as shown:
                plan = Plan(
                    runs=runs,
                    jobs=options["jobs"],
                    rows=options["rows"],
                    seconds=options["seconds"],
                    say=shown.say,
                )
                return [
                    run_measure(measure, scratch, plan, shown.tell)
                    for measure in measures
                ]

    def _say(self, line: str) -> None:
        # On standard error, as all that is not the result.
        self.stderr.write(line, style_func=str)


def measure_names(text: str) -> list[str]:
    """Read the name of a measure, or a pattern of names."""
    try:
        return chosen(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """End like Ctrl+C, by way of the clean-up, when told to stop or hung up on."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # SIGINT too: a shell that starts this in the background has it ignored.
    before = {number: signal.signal(number, interrupt) for number in END_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
