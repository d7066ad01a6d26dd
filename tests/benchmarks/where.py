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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import django

WARM_UP_JOBS = 2_000
LOOK_SECONDS = 0.05
# Less than this, in microseconds per job, is left out.
LEAST = 0.2

BACKENDS = """
SELECT pid, split_part(application_name, ' ', 2) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name LIKE 'pgqueue %%'
   AND pid <> pg_backend_pid()
"""
LEFT = "SELECT EXISTS (SELECT 1 FROM pgqueue_job WHERE id >= %s)"


def main() -> None:
    """Measure, and print microseconds per job."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.where")
    parser.add_argument(
        "--task", choices=("batched", "immediate", "not_archived"), default="batched"
    )
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=20_000)
    asked = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    sys.path.insert(0, str(Path(__file__).parents[2] / "example_project"))
    django.setup()
    from django_pgqueue.management.bench import tasks
    from django_pgqueue.management.bench.scratch import scratch_place

    task = getattr(tasks, asked.task)
    with (
        scratch_place(is_schema=False, server=None) as scratch,
        _worker(asked.threads) as worker,
        scratch.connect() as connection,
    ):
        _drain(connection, task, tasks.payloads(WARM_UP_JOBS))
        scratch.empty()
        before = worker.times(connection)
        seconds = _drain(connection, task, tasks.payloads(asked.jobs))
        after = worker.times(connection)
    spent = {
        name: (after[name] - before.get(name, 0.0)) / asked.jobs * 1e6 for name in after
    }
    sys.stdout.write(
        f"{asked.task}, {asked.threads} threads: {asked.jobs / seconds:,.0f} jobs/s; "
        f"microseconds of processor time per job:\n"
    )
    for name, each in sorted(spent.items(), key=lambda item: -item[1]):
        if each >= LEAST:
            sys.stdout.write(f"{each:8.1f}  {name}\n")
    ours = sum(each for name, each in spent.items() if name.startswith("thread"))
    sys.stdout.write(f"{ours:8.1f}  all threads of the worker\n")


class Measured:
    """A worker process whose threads are known by name."""

    def __init__(self, pid: int, names: Any) -> None:
        self._pid = pid
        self._names = names

    def times(self, connection: Any) -> dict[str, float]:
        """Return the processor seconds of each thread and server process by now."""
        self._names.send(None)
        times: dict[str, float] = {}
        for thread_name, thread in self._names.recv():
            # All threads that run tasks count as one.
            short = thread_name.rstrip("0123456789-").removeprefix("pgqueue-")
            name = f"thread {short}"
            path = f"/proc/{self._pid}/task/{thread}/schedstat"
            times[name] = times.get(name, 0.0) + _seconds(path)
        for pid, name in connection.execute(BACKENDS).fetchall():
            times[f"server {name}"] = _seconds(f"/proc/{pid}/schedstat")
        return times


@contextmanager
def _worker(threads: int) -> Iterator[Measured]:
    """Fork what a supervisor forks, with a thread more that tells the others' names."""
    context = multiprocessing.get_context("fork")
    names, theirs = context.Pipe()
    process = context.Process(target=_work, args=(threads, theirs), daemon=True)
    process.start()
    assert process.pid is not None
    try:
        yield Measured(process.pid, names)
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.join()


def _work(threads: int, names: Any) -> None:
    from django.db import connections

    from django_pgqueue.conf import get_settings
    from django_pgqueue.worker.lease.leases import Slots
    from django_pgqueue.worker.options import WorkerOptions
    from django_pgqueue.worker.supervise.supervisor import run_child

    def tell() -> None:
        while True:
            names.recv()
            alive = threading.enumerate()
            names.send([(thread.name, thread.native_id) for thread in alive])

    connections.close_all()
    threading.Thread(target=tell, daemon=True).start()
    options = WorkerOptions(settings=get_settings(), threads=threads)
    slots = Slots(multiprocessing.get_context("fork"), threads + options.async_slots)
    run_child(options, "where", slots)


def _drain(connection: Any, task: Any, payloads: list[dict[str, Any]]) -> float:
    """Enqueue, wait until all is gone, and return the seconds from the commit on."""
    first = task.bulk(payloads)[0].id
    started = time.monotonic()
    while connection.execute(LEFT, [first]).fetchone()[0]:
        time.sleep(LOOK_SECONDS)
    return time.monotonic() - started


def _seconds(path: str) -> float:
    try:
        return int(Path(path).read_text(encoding="ascii").split()[0]) / 1e9
    except OSError:
        return 0.0  # It has ended.


if __name__ == "__main__":
    main()
