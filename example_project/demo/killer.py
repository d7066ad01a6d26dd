"""Killer: kills worker processes that are busy, with SIGKILL, several times."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from example_project.demo.verdict import Kill

KILLS = 5
LOOK_SECONDS = 0.02
DEATH_SECONDS_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Target:
    """A process of the worker, and how many jobs it has."""

    worker: str
    pid: int
    threads: int
    jobs: int


class Killer:
    """
    A thread that kills KILLS times, spread evenly over the run.

    kills: those done so far, for the verdict.
    """

    def __init__(self, supervisor: int, progress: Callable[[], float]) -> None:
        """
        Args:
            supervisor: The pid of `manage.py pgqueue_worker`; only its descendants
                are killed.
            progress: Says which part of the work is done, from 0 to 1.
        """
        self.kills: list[Kill] = []
        self.failure: Exception | None = None
        self._supervisor = supervisor
        self._progress = progress
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Begin to watch; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End, whatever is left to kill."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        from django.db import connection

        try:
            for number in range(1, KILLS + 1):
                while self._progress() < number / (KILLS + 1):
                    if self._stopped.wait(LOOK_SECONDS):
                        return
                while not self._kill_one():
                    if self._stopped.wait(LOOK_SECONDS):
                        return
        except Exception as error:
            self.failure = error
        finally:
            connection.close()

    def _kill_one(self) -> bool:
        """Kill the busiest process; False when none is busy now."""
        target = busiest()
        if target is None or not is_descendant(target.pid, self._supervisor):
            return False
        killed_at = time.monotonic()
        os.kill(target.pid, signal.SIGKILL)
        while exists(target.pid):
            if time.monotonic() > killed_at + DEATH_SECONDS_MAX:
                raise RuntimeError(f"Process {target.pid} survives SIGKILL.")
            time.sleep(0.001)
        kill = Kill(target.worker, killed_at, time.monotonic(), target.threads)
        self.kills.append(kill)
        return True


def busiest() -> Target | None:
    """Return the worker process that has leased the most jobs; None: none has."""
    from django.db.models import Count

    from django_pgqueue.models import Job, Worker

    jobs = dict(
        Job.objects.running().values_list("leased_by").annotate(Count("pk")).order_by()
    )
    targets = [
        Target(worker.name, worker.pid, worker.threads, jobs[worker.name])
        for worker in Worker.objects.filter(name__in=jobs)
    ]
    return max(targets, key=lambda target: target.jobs, default=None)


def is_descendant(pid: int, ancestor: int) -> bool:
    """Whether *pid* was started by *ancestor*, or by a process that it started."""
    for _ in range(4):
        if pid in (ancestor, 0, 1):
            return pid == ancestor
        pid = parent_of(pid)
    return False


def parent_of(pid: int) -> int:
    """Return the pid of the parent; 0 when there is no such process."""
    if not Path("/proc/self/stat").exists():
        command = ["/bin/ps", "-o", "ppid=", "-p", str(pid)]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        return int(said.stdout or 0)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    # "pid (name) state ppid …", and the name may hold anything.
    return int(stat.rpartition(")")[2].split()[1])


def exists(pid: int) -> bool:
    """
    Whether the process is there, as a zombie at least.

    Its first thread may be a zombie while others still hold its connections open; the
    supervisor collects it when the last one is gone.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
