"""
Where the processor time of a job goes, by thread of the worker and by connection.

    python -m tests.benchmarks.where [--task batched] [--threads 8] [--jobs 20000]

A worker process drains jobs that do nothing. The kernel counts what each of its threads
and each of its server processes has run, in nanoseconds: unlike a rate, that hardly
depends on what else the machine does. Linux only, with the server on this machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks import cpu
from tests.benchmarks.processes import say
from tests.benchmarks.scratch import Worker, scratch

WARM_UP_JOBS = 2_000
# Less than this, in microseconds per job, is left out.
LEAST = 0.2

BACKENDS = """
SELECT pid, split_part(application_name, ' ', 2) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name LIKE 'pgqueue %%'
   AND pid <> pg_backend_pid()
"""


def main() -> None:
    """Measure, and print microseconds per job."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.where")
    tasks = ("batched", "immediate", "not_archived")
    parser.add_argument("--task", choices=tasks, default="batched")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=20_000)
    asked = parser.parse_args()
    with scratch(0, 0, say) as place, _worker(asked.threads) as (pid, names):
        from tests.benchmarks.measures import tasks as declared

        worker = Worker(place.plain, lambda: True)
        task = getattr(declared, asked.task)
        archived = asked.task != "not_archived"
        worker.drained(task.bulk, WARM_UP_JOBS, archived=archived)
        before = times(pid, names, place.plain)
        rate = worker.drained(task.bulk, asked.jobs, archived=archived)
        spent = times(pid, names, place.plain)
    spent.subtract(before)
    sys.stdout.write(
        f"{asked.task}, {asked.threads} threads: {rate:,.0f} jobs/s; "
        f"microseconds of processor time per job:\n"
    )
    spent["all threads of the worker"] = sum(
        seconds for name, seconds in spent.items() if name.startswith("thread")
    )
    for name, seconds in spent.most_common():
        if (each := seconds / asked.jobs * 1e6) >= LEAST:
            sys.stdout.write(f"{each:8.1f}  {name}\n")


def times(pid: int, names: Any, connection: Any) -> Counter[str]:
    """Return the processor seconds of each thread and server process by now."""
    names.send(None)
    used: Any = Counter()
    for thread_name, thread in names.recv():
        # All threads that run tasks count as one.
        short = thread_name.rstrip("0123456789-").removeprefix("pgqueue-")
        used[f"thread {short}"] += cpu.of_thread(Path(f"/proc/{pid}/task/{thread}"))
    for backend, name in connection.execute(BACKENDS).fetchall():
        used[f"server {name}"] += cpu.of_thread(Path(f"/proc/{backend}"))
    return Counter(used)


@contextmanager
def _worker(threads: int) -> Iterator[tuple[int, Any]]:
    """Fork what a supervisor forks, with a thread more that tells the others' names."""
    from django.db import connections

    connections.close_all()
    context = multiprocessing.get_context("fork")
    names, theirs = context.Pipe()
    process = context.Process(target=_work, args=(_made(threads), theirs), daemon=True)
    process.start()
    assert process.pid is not None
    try:
        yield process.pid, names
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.join()


def _made(threads: int) -> Any:
    from django_pgqueue.conf import get_settings
    from django_pgqueue.worker.lease.leases import Slots
    from django_pgqueue.worker.options import WorkerOptions
    from django_pgqueue.worker.supervise.process import Process

    options = WorkerOptions(settings=get_settings(), threads=threads)
    slots = Slots(multiprocessing.get_context("fork"), threads + options.async_slots)
    return Process(options, "where", slots)


def _work(made: Any, names: Any) -> None:
    from django_pgqueue.worker.supervise.supervisor import run_child

    def tell() -> None:
        while True:
            names.recv()
            alive = threading.enumerate()
            names.send([(thread.name, thread.native_id) for thread in alive])

    threading.Thread(target=tell, daemon=True).start()
    run_child(made)


if __name__ == "__main__":
    main()
