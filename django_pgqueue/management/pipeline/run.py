"""pgqueue_pipeline run: run a pipeline job here and now."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management import CommandError

from django_pgqueue.exceptions import PipelineBusy
from django_pgqueue.management.cli.output import EXIT_USAGE, Output
from django_pgqueue.management.cli.words import whole_number
from django_pgqueue.management.pipeline.plan import plan_of, this_account
from django_pgqueue.management.pipeline.supervise import (
    RESTARTS_MAX,
    STUCK_SECONDS,
    STUCK_SECONDS_MAX,
    STUCK_SECONDS_MIN,
    Supervisor,
)
from django_pgqueue.operators.human import duration
from django_pgqueue.spark.options import ROWS_PER_SECOND_MAX
from django_pgqueue.spark.running import (
    EXIT_BUSY,
    Ended,
    Snapshot,
    StopFlag,
    Stoppable,
    run_job,
)
from django_pgqueue.spark.submit import add_option

HELP = "Run a pipeline job."

# Where standard error is no terminal: a line so often.
LINE_SECONDS = 10.0


def add_arguments(parser: Any) -> None:
    """Declare what is run, and how."""
    parser.add_argument("job", metavar="JOB", help="As list names it.")
    add_option(parser)
    parser.add_argument(
        "--max-rows-per-second",
        type=whole_number(ROWS_PER_SECOND_MAX),
        metavar="N",
        help="Of each table that is read, to spare the database.",
    )
    parser.add_argument(
        "--dsn-env",
        metavar="NAME",
        help="Read from the database in this environment variable, such as a replica.",
    )
    parser.add_argument(
        "--asked-by", metavar="WHO", help="Noted with the run (default: the account)."
    )
    parser.add_argument(
        "--restarts",
        type=whole_number(RESTARTS_MAX),
        metavar="N",
        help="Begin it again when it dies or hangs; not after N failures in a row.",
    )
    parser.add_argument(
        "--stuck-seconds",
        type=whole_number(STUCK_SECONDS_MAX, least=STUCK_SECONDS_MIN),
        metavar="N",
        help="With --restarts: how long a run may stand still before it is ended "
        f"(default {STUCK_SECONDS}).",
    )
    # The job of the queue that runs this; and that a supervisor does.
    parser.add_argument("--queue-job", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)


def run(options: dict[str, Any], out: Output) -> int:
    """Run it to its end."""
    if options["restarts"]:
        return _supervise(options, out)
    if options["stuck_seconds"]:
        raise CommandError(
            "--stuck-seconds is for runs that are begun again: give --restarts, too.",
            returncode=EXIT_USAGE,
        )
    read_options = {}
    if options["max_rows_per_second"]:
        read_options["maxRowsPerSecond"] = str(options["max_rows_per_second"])
    if options["dsn_env"]:
        read_options["dsnEnv"] = options["dsn_env"]
    plan = plan_of(
        options["job"],
        dict(options["option"]),
        by=(options["asked_by"] or this_account())[:150],
        queue_job=options["queue_job"],
        read_options=read_options,
    )
    _quiet()
    is_child = options["supervised"] or options["queue_job"] is not None
    stop = _OfParent() if is_child else StopFlag()
    shown = _Shown(options["job"], out)
    try:
        with _signals_set(stop):
            ended = run_job(plan, stop=stop, tell=shown.tell)
    except PipelineBusy as error:
        out.end_progress()
        out.note(str(error))
        return EXIT_BUSY
    out.end_progress()
    _say(ended, options["job"], out)
    return ended.exit_status


def _supervise(options: dict[str, Any], out: Output) -> int:
    """Let processes run it, one after the other, until it ends."""
    given = dict(options["option"])
    # What is wrong is said once, and nothing is begun.
    plan_of(options["job"], given)
    said = ["--asked-by", options["asked_by"] or this_account()]
    for name in ("max_rows_per_second", "dsn_env"):
        if options[name]:
            said += [f"--{name.replace('_', '-')}", str(options[name])]
    stop = StopFlag()
    with _signals_set(stop):
        return Supervisor(
            options["job"],
            given,
            (*said, *(["--json"] if out.as_json else [])),
            restarts=options["restarts"],
            stuck_seconds=options["stuck_seconds"] or STUCK_SECONDS,
            stop=stop,
            tell=out.note,
        ).run()


def _quiet() -> None:
    """Have pyspark print nothing that the error of the run says, or nobody can mend."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "PySpark does not yet fully support")


class _OfParent(StopFlag):
    """Set as well when the worker or supervisor is gone that has started this."""

    def __init__(self) -> None:
        super().__init__()
        self._parent = os.getppid()

    def is_set(self) -> bool:
        """Whether the run is to stop."""
        # Its job is handed back or rescued, or it is begun again, and has another run.
        return super().is_set() or os.getppid() != self._parent


def _say(ended: Ended, job: str, out: Output) -> None:
    if out.as_json:
        out.json({"job": job, **dataclasses.asdict(ended)})
        return
    for note in ended.notes:
        out.block(note, indent="")
    out.line(
        f"{job}: {ended.state} in {duration(ended.seconds)}, "
        f"{ended.rows_in:,} rows in, {ended.rows_out:,} out (run {ended.run})."
    )
    if ended.error:
        out.block(ended.error)


class _Shown:
    """Progress on standard error: a line that is replaced, or one now and then."""

    def __init__(self, job: str, out: Output) -> None:
        self._job = job
        self._out = out
        self._next = time.monotonic()
        self._phase = ""

    def tell(self, snapshot: Snapshot) -> None:
        """Show how far the run is."""
        line = f"{self._job}: {_line(snapshot)}"
        if self._out.errors_to_terminal:
            self._out.progress(line)
            return
        now = time.monotonic()
        if snapshot.phase != self._phase or now >= self._next:
            self._phase, self._next = snapshot.phase, now + LINE_SECONDS
            self._out.note(line)


def _line(snapshot: Snapshot) -> str:
    parts = [snapshot.phase]
    if snapshot.tasks:
        parts.append(f"{snapshot.tasks_done}/{snapshot.tasks} tasks")
    if snapshot.rows_in:
        parts.append(f"{snapshot.rows_in:,} rows")
        parts.append(f"{snapshot.rows_per_second:,.0f} rows/s")
    return ", ".join(parts)


@contextmanager
def _signals_set(stop: Stoppable) -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP stop the run, which then ends by itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in numbers
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
