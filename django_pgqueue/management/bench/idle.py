"""idle: what a worker costs that has nothing to do."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django_pgqueue.management.bench import gauges
from django_pgqueue.management.bench.measure import Measure, Pair, Plan, Run, at_most
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.worker import Worker
from django_pgqueue.models import Worker as WorkerRow

CPU_PERCENT_MAX = 0.5
QUERIES_PER_SECOND_MAX = 2.0
RSS_MB_MAX = 80.0

# A session tells the server's counters what it did after 10 s at the latest, so what
# it did at its start is told by then.
COUNTED_AFTER_SECONDS = 10.5

# Of `ps -o time=`: days-hours:minutes:seconds, of which the first two may be missing.
PS_TIME = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)")

NANOSECONDS = 1e9


class Idle:
    """Product: a worker with 8 threads. The other side: the goals."""

    def __init__(self, scratch: Scratch, worker: Worker, seconds: float) -> None:
        self._scratch = scratch
        self._worker = worker
        self._seconds = seconds
        self._pids: list[int] = []

    def pair(self, jobs: int) -> Pair:
        """Return the largest share of a goal, and the figures."""
        if not self._pids:
            self._pids = self._come_to_rest()
        queries, cpu, started = self._read()
        time.sleep(self._seconds)
        queries_after, cpu_after, ended = self._read()
        seconds = ended - started
        figures = {
            "cpu_percent": (cpu_after - cpu) / seconds * 100,
            "rss_mb": max(map(resident_bytes, self._pids)) / 1_000_000,
        }
        goals = {"cpu_percent": CPU_PERCENT_MAX, "rss_mb": RSS_MB_MAX}
        if not self._scratch.place.is_schema:
            # One of them was our own look.
            figures["queries_per_second"] = (
                max(queries_after - queries - 1, 0) / seconds
            )
            goals["queries_per_second"] = QUERIES_PER_SECOND_MAX
        worst = max(figures[name] / limit for name, limit in goals.items())
        return Pair(Run([worst], figures), Run([1.0], goals))

    def _come_to_rest(self) -> list[int]:
        """Wait until it has started and said so; return its processes."""
        rows = WorkerRow.objects.using(self._scratch.alias)
        self._worker.wait_while(lambda: not rows.exists())
        time.sleep(min(COUNTED_AFTER_SECONDS, self._seconds))
        return [self._worker.pid, *rows.values_list("pid", flat=True)]

    def _read(self) -> tuple[int, float, float]:
        transactions = gauges.transactions(self._worker.cursor)
        cpu = sum(map(cpu_seconds, self._pids))
        return transactions, cpu, time.monotonic()


def cpu_seconds(pid: int) -> float:
    """Return the processor time that the threads of *pid* have had so far."""
    threads = Path(f"/proc/{pid}/task")
    try:
        # In nanoseconds; /proc/PID/stat counts hundredths of a second.
        told = [(thread / "schedstat").read_text() for thread in threads.iterdir()]
        return sum(int(text.split()[0]) for text in told) / NANOSECONDS
    except OSError:
        return _seconds_of_ps(_ps(pid, "time"))


def resident_bytes(pid: int) -> int:
    """Return the memory of *pid* that is in RAM; what it shares counts too."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return int(_ps(pid, "rss")) * 1_024


def _ps(pid: int, column: str) -> str:
    return subprocess.run(  # noqa: S603
        ["ps", "-o", f"{column}=", "-p", str(pid)],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def _seconds_of_ps(text: str) -> float:
    found = PS_TIME.fullmatch(text)
    assert found, text
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


@contextmanager
def _opened(scratch: Scratch, plan: Plan) -> Iterator[Idle]:
    scratch.empty()
    with Worker(scratch, threads=8) as worker:
        yield Idle(scratch, worker, plan.seconds)


IDLE = Measure(
    name="idle",
    what="one idle process with 8 threads: worst share of its three goals",
    unit="goals",
    jobs=0,
    goals=(
        at_most("cpu_percent", CPU_PERCENT_MAX, "%"),
        at_most("queries_per_second", QUERIES_PER_SECOND_MAX, "/s"),
        at_most("rss_mb", RSS_MB_MAX, "MB"),
    ),
    baseline="the goals themselves",
    other_side="",
    parts={"": _opened},
    warm_up_jobs=0,
)
