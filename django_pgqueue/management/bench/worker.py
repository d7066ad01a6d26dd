"""Worker: the handle on a worker process, and on what it has done."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from django.core.management.base import CommandError

from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.models import ArchivedJob, Job

ENTRY = "django_pgqueue.management.bench.worker_process"

# The error of the time that is measured, and the cost of looking: about 2 % of a core.
POLL_SECONDS = 0.01

# After its tables were emptied: a claim that had to wait for that makes the claimer
# put off the next ones for some hundred milliseconds.
REST_SECONDS = 1.0

# Nothing finished for as long means that nothing will.
PATIENCE_SECONDS = 60.0
STOP_SECONDS = 10.0
LOG_CHARACTERS_SHOWN = 2_000


class Worker:
    """A worker on the scratch database, for as long as the block lasts."""

    def __init__(self, scratch: Scratch, *, threads: int, processes: int = 1) -> None:
        self._scratch = scratch
        self._arguments = [scratch.name, str(threads), str(processes)]

    def __enter__(self) -> Self:
        if "DJANGO_SETTINGS_MODULE" not in os.environ:
            raise CommandError(
                "DJANGO_SETTINGS_MODULE is not set, so a worker process would find no "
                "settings. Run this with manage.py."
            )
        # Its lines belong to nobody's standard output; they are shown if it fails.
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(  # noqa: S603  # Our own module, no shell.
            [sys.executable, "-m", ENTRY, *self._arguments],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(p or "." for p in sys.path),
            },
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # Ctrl+C comes to the benchmark, which stops it.
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def rest(self) -> None:
        """Let the worker become idle, as it is when nothing was due for a while."""
        time.sleep(REST_SECONDS)

    def wait_until_done(self, ids: list[int]) -> float:
        """
        Wait until these jobs, given in the order of their ids, have all succeeded.

        Returns:
            The monotonic time at which that was seen.

        Raises:
            CommandError: The worker died, or a job failed or hangs.
        """
        alias = self._scratch.alias
        # The last one alone is cheap to ask for, and the others are seldom behind it.
        self._wait_while(Job.objects.using(alias).filter(pk=ids[-1]).exists)
        self._wait_while(Job.objects.using(alias).exists)
        done_at = time.monotonic()
        archived = ArchivedJob.objects.using(alias).filter(state="succeeded")
        if archived.count() != len(ids):
            raise CommandError(
                f"Of {len(ids)} jobs, {archived.count()} succeeded.{self._said()}"
            )
        return done_at

    def _wait_while(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while condition():
            if self._process.poll() is not None:
                raise CommandError(f"The worker process ended.{self._said()}")
            if time.monotonic() > until:
                raise CommandError(
                    f"Jobs are not done after {PATIENCE_SECONDS:g} s.{self._said()}"
                )
            time.sleep(POLL_SECONDS)

    def _said(self) -> str:
        self._log.seek(0)
        return f" It said:\n{self._log.read()[-LOG_CHARACTERS_SHOWN:]}"
