"""
Worker process: a real worker on the scratch place; started by worker.py.

    python -m django_pgqueue.management.bench.worker_process \\
        PLACE THREADS PROCESSES QUEUES ASYNC_SLOTS READS METRICS TRACE

It is what pgqueue_worker runs, with the same supervisor. The tasks of the benchmark are
declared here, so that no project has to install them.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import django


def main(
    place: str,
    threads: int,
    processes: int,
    queues: tuple[str, ...],
    async_slots: int,
    *,
    reads: bool,
    metrics: bool,
    trace: str,
) -> int:
    """Work until told to stop, or until the benchmark is gone."""
    from django_pgqueue.management.bench.place import Place, isolated

    # Before the apps are loaded: what they ask of the database when they are ready
    # must not be asked of the real one.
    with isolated(Place.from_text(place)):
        django.setup()
        if reads:
            from django_pgqueue.management.bench.topics import declare_group

            declare_group()
        return _work(
            threads, processes, queues, async_slots, metrics=metrics, trace=trace
        )


def _work(
    threads: int,
    processes: int,
    queues: tuple[str, ...],
    async_slots: int,
    *,
    metrics: bool,
    trace: str,
) -> int:
    from django_pgqueue.conf import get_settings
    from django_pgqueue.management.bench import (
        tasks,  # noqa: F401 - declares them
        traced,
    )
    from django_pgqueue.management.bench.subprocesses import stop_with
    from django_pgqueue.management.commands.pgqueue_worker import show_log_lines
    from django_pgqueue.worker.options import WorkerOptions
    from django_pgqueue.worker.supervise.supervisor import Supervisor

    if trace == traced.RECORDS:
        traced.set_up_sdk()
    show_log_lines(verbosity=1)
    stop_with(os.getppid())
    return Supervisor(
        WorkerOptions(
            settings=replace(get_settings(), trace=trace != traced.OFF),
            threads=threads,
            processes=processes,
            queues=queues,
            async_slots=async_slots or 1,
            has_async_tasks=bool(async_slots),
            health_port=0 if metrics else None,
            # All is counted and shown; nobody asks, so no package is needed for that.
            metrics=_nobody_asks if metrics else None,
        )
    ).run()


def _nobody_asks(*_: object) -> tuple[str, bytes]:
    return "text/plain", b""


if __name__ == "__main__":
    sys.exit(
        main(
            sys.argv[1],
            int(sys.argv[2]),
            int(sys.argv[3]),
            tuple(filter(None, sys.argv[4].split(","))),
            int(sys.argv[5]),
            reads=sys.argv[6] == "reads",
            metrics=sys.argv[7] == "metrics",
            trace=sys.argv[8],
        )
    )
