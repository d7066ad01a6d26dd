"""Child: a run of a pipeline job in a process of its own, and what its row says."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import django.db
from django.db import connections

from django_pgqueue.conf import get_settings
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.tasks import database

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
