"""
Worker process: a real worker on the scratch database; started by worker.py.

    python -m django_pgqueue.management.bench.worker_process DATABASE THREADS PROCESSES

It is what pgqueue_worker runs, with the same supervisor. The tasks of the benchmark are
declared here, so that no project has to install them.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import django

PARENT_CHECK_SECONDS = 1.0


def main(database: str, threads: int, processes: int) -> int:
    """Work until told to stop, or until the benchmark is gone."""
    from django_pgqueue.management.bench.isolation import isolated

    # Before the apps are loaded: what they ask of the database when they are ready
    # must not be asked of the real one.
    with isolated(database):
        django.setup()
        return _work(threads, processes)


def _work(threads: int, processes: int) -> int:
    from django_pgqueue.conf import get_settings
    from django_pgqueue.management.bench import tasks  # noqa: F401 - declares them
    from django_pgqueue.management.commands.pgqueue_worker import show_log_lines
    from django_pgqueue.worker.options import WorkerOptions
    from django_pgqueue.worker.supervisor import Supervisor

    show_log_lines(verbosity=1)
    _stop_with(os.getppid())
    return Supervisor(
        WorkerOptions(settings=get_settings(), threads=threads, processes=processes)
    ).run()


def _stop_with(parent: int) -> None:
    """Stop when the benchmark was killed; a timer, as a supervisor has no threads."""

    def check(number: int, frame: Any) -> None:
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, PARENT_CHECK_SECONDS, PARENT_CHECK_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
