"""Subprocesses: modules of ours that run beside the benchmark, in Python of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import IO, Any

from django.core.management.base import CommandError

STOP_SECONDS = 10.0

PARENT_CHECK_SECONDS = 1.0


def start(
    module: str, *arguments: str, log: IO[str], talks: bool = False
) -> subprocess.Popen[str]:
    """
    Run ``python -m module arguments`` with the settings of this process.

    Args:
        module: Its full name.
        arguments: Its command line.
        log: Where its standard error goes, and its standard output.
        talks: Its standard input and output are pipes instead.

    Raises:
        CommandError: There are no settings that it could find.
    """
    if "DJANGO_SETTINGS_MODULE" not in os.environ:
        raise CommandError(
            "DJANGO_SETTINGS_MODULE is not set, so a worker process would find no "
            "settings. Run this with manage.py."
        )
    return subprocess.Popen(  # noqa: S603  # Our own module, no shell.
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p or "." for p in sys.path)},
        stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
        stdout=subprocess.PIPE if talks else log,
        stderr=log,
        text=True,
        start_new_session=True,  # Ctrl+C comes to the benchmark, which stops it.
    )


def stop(process: subprocess.Popen[str]) -> None:
    """End it in order, or else by force, and wait for that."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def stop_with(parent: int) -> None:
    """Stop when *parent*, the benchmark, was killed; without a thread of its own."""

    def check(number: int, frame: Any) -> None:
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, PARENT_CHECK_SECONDS, PARENT_CHECK_SECONDS)
