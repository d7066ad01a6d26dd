"""Fleet: the workers of a run. Each is a supervisor with its processes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.harness.waiting import wait_for
from tests.harness.worker_process import children_of, group_exists, is_alive

START_SECONDS = 60.0
STOP_SECONDS = 30.0

HZ = os.sysconf("SC_CLK_TCK")


class Worker:
    """One supervisor, and what it and its processes print."""

    def __init__(
        self,
        log: Path,
        *,
        build: Path,
        environment: Mapping[str, str],
        processes: int,
        threads: int,
        arguments: Sequence[str] = (),
        place: int = 0,
    ) -> None:
        self.log = log
        self.place = place
        self.processes = processes
        # Every child there was: an orphan is found by it.
        self.known: set[int] = set()
        with log.open("ab") as output:
            self.popen = subprocess.Popen(
                [
                    *(sys.executable, "-m", "django", "pgqueue_worker"),
                    *(f"--processes={processes}", f"--threads={threads}"),
                    *arguments,
                ],
                cwd=build,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id of the supervisor, and of the group."""
        return self.popen.pid

    @property
    def is_up(self) -> bool:
        """Whether the supervisor lives."""
        return self.popen.poll() is None

    def children(self) -> list[int]:
        """Return the process ids of its living children."""
        found = children_of(self.pid)
        self.known.update(found)
        return sorted(found)

    def lines(self, pattern: str = "") -> list[str]:
        """Return the lines printed so far that match the regular expression."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return [line for line in text.splitlines() if re.search(pattern, line)]

    def names(self) -> list[str]:
        """Return the names of the worker processes started so far."""
        return re.findall(r"started    worker=(\S+)", "\n".join(self.lines()))

    def usual(self) -> set[int]:
        """Return the processes started so far that do not run suspects alone."""
        started = self.lines(r"started    worker=\S+\.\d+-\w+ pid=")
        return {int(line.rpartition("=")[2]) for line in started}

    def wait_until_ready(self) -> None:
        """Return when every process of it is ready to claim."""

        def is_ready() -> bool:
            assert self.is_up, f"a worker did not start: {self.lines()[-5:]}"
            return len(self.lines(r"started    worker=")) >= self.processes

        wait_for(is_ready, START_SECONDS, "a worker is ready")

    def stop(self) -> int | None:
        """Stop it as an operator does; return its status, None if it does not end."""
        if self.is_up:
            self.popen.send_signal(signal.SIGTERM)
        try:
            return self.popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return None

    def destroy(self) -> None:
        """Leave nothing of it, orphans included."""
        for number in (signal.SIGCONT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
        self.popen.wait(STOP_SECONDS)
        wait_for(lambda: not group_exists(self.pid), what="a worker's group is gone")


class Fleet:
    """All workers that a run has started."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []

    def living(self) -> list[Worker]:
        """Return the workers whose supervisor lives."""
        return [worker for worker in self.workers if worker.is_up]

    def children(self) -> list[int]:
        """Return the living processes of living supervisors, in a fixed order."""
        return [pid for worker in self.living() for pid in worker.children()]

    def orphans(self) -> list[int]:
        """Return processes that live on without their supervisor."""
        dead = [worker for worker in self.workers if not worker.is_up]
        return [pid for worker in dead for pid in worker.known if is_alive(pid)]

    def lines(self, pattern: str = "") -> list[str]:
        """Return the matching lines of all of them."""
        return [line for worker in self.workers for line in worker.lines(pattern)]

    def cpu_seconds(self) -> dict[int, float]:
        """Return the processor time that each living process has used."""
        used = {}
        for pid in self.children():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                stat = Path(f"/proc/{pid}/stat").read_text()
                user, system = stat.rpartition(")")[2].split()[11:13]
                used[pid] = (int(user) + int(system)) / HZ
        return used

    def destroy(self) -> None:
        """End everything."""
        for worker in self.workers:
            worker.destroy()
