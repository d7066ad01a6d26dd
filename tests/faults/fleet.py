"""Fleet: the workers of a run. Each is a supervisor with its processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.harness.worker_process import WorkerProcess, is_alive

START_SECONDS = 60.0
STOP_SECONDS = 30.0

HZ = os.sysconf("SC_CLK_TCK")


class Worker(WorkerProcess):
    """One supervisor of a build, and what it and its processes print."""

    def __init__(
        self,
        log: Path,
        *,
        build: Path,
        environment: Mapping[str, str],
        processes: int,
        threads: int,
        place: int = 0,
    ) -> None:
        self.log = log
        self.place = place
        self.processes = processes
        # Every child there was: an orphan is found by it.
        self.known: set[int] = set()
        # Not by the fork server of the tests, which has imported the package itself.
        with log.open("ab") as output:
            self.popen = subprocess.Popen(
                [
                    *(sys.executable, "-m", "django", "pgqueue_worker"),
                    *(f"--processes={processes}", f"--threads={threads}"),
                ],
                cwd=build,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def is_up(self) -> bool:
        """Whether the supervisor lives."""
        return self.popen.poll() is None

    def children(self) -> list[int]:
        """Return the process ids of its living children, in order."""
        children = super().children()
        self.known.update(children)
        return sorted(children)

    def usual(self) -> set[int]:
        """Return the processes started so far that do not run suspects alone."""
        started = self.lines(r"started    worker=\S+\.\d+-\w+ pid=")
        return {int(line.rpartition("=")[2]) for line in started}

    def wait_until_ready(self) -> None:
        """Return when every process of it is ready to claim."""
        self.wait_for_lines(r"started    worker=", self.processes, START_SECONDS)

    def status(self) -> int | None:
        """Return the exit status once it has ended; None if it does not end."""
        try:
            return self.popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return None


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

    def end(self) -> list[int | None]:
        """Stop the living workers as an operator does; return their statuses."""
        living = self.living()
        for worker in living:
            worker.signal(signal.SIGTERM)
        return [worker.status() for worker in living]

    def destroy(self) -> None:
        """End everything."""
        for worker in self.workers:
            worker.destroy()
