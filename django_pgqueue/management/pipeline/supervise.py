"""
Supervise: a run of a pipeline job that is begun again whenever it dies or hangs.

Each run is a process of its own, in a group with its Java, and goes on from what the
one before has left. It is ended by force when its lease is over, and when nothing of it
has moved for long: what it has not put in place, the next one does. Then its row says
why, and nobody waits for the end of its lease.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

import django.db
from django.db import connections

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import SparkError
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_USAGE
from django_pgqueue.operators.human import duration
from django_pgqueue.options.retry import Retry
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.spark.running import EXIT_FAILED, EXIT_STOPPED, Stoppable
from django_pgqueue.tasks import database

# Those after which nothing is begun again: it is done, it can never be, or somebody has
# stopped it.
ENDS = (EXIT_DONE, EXIT_USAGE, EXIT_STOPPED)

# Half of it at least, so that what died together does not come back together.
BACKOFF = Retry(base="1s", cap="1m", jitter="equal")

RESTARTS_MAX = 1_000
STUCK_SECONDS, STUCK_SECONDS_MIN, STUCK_SECONDS_MAX = 300, 1, 86_400

# What a process may take to begin its run.
START_SECONDS_MAX = 120.0

# Between two looks at the process; the row is looked at as often as it is renewed.
LOOK_SECONDS = 0.2


@dataclass
class Supervisor:
    """Runs a pipeline job again and again; one at a time."""

    job: str
    options: Mapping[str, str]
    # Further arguments of each run.
    said: tuple[str, ...]
    _: KW_ONLY
    restarts: int
    stop: Stoppable
    tell: Callable[[str], None]
    stuck_seconds: float = STUCK_SECONDS
    # Of the run that is under way; and the latest of before, since a process may have
    # the number of one that is long gone. None: nobody knows.
    _row: dict[str, Any] | None = field(default=None, init=False)
    _after: int | None = field(default=None, init=False)

    def run(self) -> int:
        """Go on until the job has ended, is stopped, or gives up; return the status."""
        failures = 0
        while True:
            status, reason = self._once()
            if reason is None:
                return status
            failures = 1 if _has_moved(self._row) else failures + 1
            if failures > self.restarts:
                self.tell(
                    f"{self.job} gives up: {failures} runs have failed in a row. The "
                    f"last one: {reason}"
                )
                return status
            pause = BACKOFF.delay(failures, SparkError(reason)).total_seconds()
            self.tell(
                f"{self.job} is begun again in {pause:.1f} s, after {failures} of "
                f"{self.restarts} failures in a row: {reason}"
            )
            until = time.monotonic() + pause
            while (left := until - time.monotonic()) > 0:
                if self.stop.is_set():
                    return EXIT_STOPPED
                time.sleep(min(left, LOOK_SECONDS))

    def _once(self) -> tuple[int, str | None]:
        """Run it once; return the status, and why it is to be begun again."""
        self._row, self._after = None, self._latest()
        # A signal for us is not one for it.
        said = (*self.said, "--supervised")
        process = start(self.job, self.options, *said, start_new_session=True)
        try:
            forced = self._watch(process)
        finally:
            end(process)
        status, how = process.returncode, f"exit status {process.returncode}"
        if status < 0:
            # Its Java may have outlived it.
            _kill(process)
            status, how = EXIT_FAILED, f"signal {-status}"
        self._look(process)
        if self.stop.is_set() or status in ENDS:
            return status, None
        reason = forced or f"Its process {process.pid} ended with {how}."
        row = self._row
        if row is not None and row["state"] == "running":
            run = row["id"]
            asked(lambda cursor: pipelines.lose(cursor, run, reason), None)
        elif row is not None and row["error"]:
            reason = row["error"].splitlines()[0]
        return status, reason

    def _watch(self, process: subprocess.Popen[bytes]) -> str | None:
        """Wait for its end, or end it by force; return why that was."""
        moved_at = looked_at = time.monotonic()
        before = None
        while not self.stop.is_set():
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_SECONDS)
                return None
            now = time.monotonic()
            if now - looked_at < pipelines.BEAT_SECONDS:
                continue
            looked_at = now
            if not self._look(process):
                # Nothing is known, so nothing is held against it.
                moved_at = now
                continue
            row = self._row
            if row is not None and row["is_late"]:
                _kill(process)
                return f"Its process {process.pid} lived, and its lease was over."
            if (seen := _moving(row)) != before:
                before, moved_at = seen, now
            elif now - moved_at > (
                self.stuck_seconds
                if row is not None
                else max(self.stuck_seconds, START_SECONDS_MAX)
            ):
                _kill(process)
                still = duration(now - moved_at)
                return f"It was stuck: nothing of it had moved for {still}."
        return None

    def _look(self, process: subprocess.Popen[bytes]) -> bool:
        """Read its row, if there is one; False: the database does not say."""
        after = self._after
        if after is None:
            return False
        found: list[dict[str, Any] | None] = asked(
            lambda cursor: [row_of(cursor, self.job, process.pid, after=after)],
            [],
        )
        self._row = found[0] if found else self._row
        return bool(found)

    def _latest(self) -> int | None:
        """Return the job's latest run; 0: there is none, None: nobody knows."""
        latest: list[dict[str, Any]] | None = asked(
            lambda cursor: pipelines.latest(cursor, job=self.job, limit=1), None
        )
        if latest is None:
            return None
        return latest[0]["id"] if latest else 0


def _has_moved(row: dict[str, Any] | None) -> bool:
    """Whether a run has done anything that the next one need not do."""
    return row is not None and bool(row["rows_out"] or row["progress"].get("turns"))


def _moving(row: dict[str, Any] | None) -> Any:
    """Return what changes as long as a run gets on; its rate changes by itself."""
    if row is None:
        return None
    kept = {k: v for k, v in row["progress"].items() if k != "rows_per_second"}
    return row["id"], row["rows_in"], row["rows_out"], kept


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# Child ------------------------------------------------------------------------------

T = TypeVar("T")

# What a process may take to end that was told to; it gives Spark some of it.
END_SECONDS_MAX = 60.0


def start(
    job: str, options: Mapping[str, Any], *said: str, **how: Any
) -> subprocess.Popen[bytes]:
    """
    Begin a run of *job*.

    Args:
        job: The pipeline job.
        options: Those of the job.
        said: Further arguments of pgqueue_pipeline run.
        how: Further arguments of Popen.
    """
    command = [sys.executable, "-m", "django", "pgqueue_pipeline", "run", job]
    for name, value in options.items():
        command += ["--option", f"{name}={value}"]
    return subprocess.Popen(  # noqa: S603  # Our own command.
        [*command, *said],
        # manage.py may be in another folder than the one that we are in.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        **how,
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop the process if it runs, as an operator would; in the end, by force."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def asked(ask: Callable[[Cursor], T], otherwise: T) -> T:
    """Return what *ask* reads from the database; *otherwise* while that is away."""
    try:
        with database.cursor() as cursor:
            return ask(cursor)
    except django.db.Error:
        # The run beats by itself; what it does is told a second later.
        connections[get_settings().database].close()
        return otherwise


def row_of(cursor: Cursor, job: str, pid: int, **of_run: int) -> dict[str, Any] | None:
    """Return what a process of this host has reached; as runs.of_process()."""
    hostname = socket.gethostname()
    return pipelines.of_process(cursor, job, hostname=hostname, pid=pid, **of_run)
