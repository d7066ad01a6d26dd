"""Kill a worker process again and again, and count the jobs that run twice."""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.faults.build import make_build
from tests.faults.fleet import Worker
from tests.faults.server import Server, environment, make_template
from tests.faults.windows.tasks import NAME, RECORD, STARTED
from tests.harness.waiting import wait_for
from tests.harness.worker_process import children_of

TASKS = "tests.faults.windows.tasks"

# After the process is at work: the moment of the kill is drawn from these seconds.
MOMENT_SECONDS = (0.02, 0.25)

# Jobs that wait at least when a process is killed, by strength: none may run dry.
BACKLOG = {"immediate": 8_000, "batched": 20_000, "atomic": 6_000}

# What a process may hold besides what it runs: the jobs of one write (BATCH_ROWS_MAX of
# the settler) and those claimed ahead (PREFETCH_MAX of the claimer).
HELD_MAX = 2_000

READY_SECONDS = 120.0
LOOK_SECONDS = 0.05

FEED = """
INSERT INTO pgqueue_job (task, kwargs)
SELECT %s, jsonb_build_object('seconds', %s::float8) FROM generate_series(1, %s)
"""
# As in production: no trigger that remembers each change.
WITHOUT_HISTORY = """
DROP TRIGGER faults ON pgqueue_job;
DROP TRIGGER faults ON pgqueue_archived_job;
DROP TRIGGER faults ON pgqueue_dead_letter
"""
WAITING = "SELECT count(*) FROM pgqueue_job WHERE leased_by IS NULL"
# Whether an earlier kill has left jobs to be run alone, or leases of a dead process.
IS_CLEAN = """
SELECT count(*) FILTER (WHERE runs_alone) = 0 AND count(DISTINCT leased_by) <= 1
  FROM pgqueue_job
"""
UNTOUCHED = "DELETE FROM pgqueue_job WHERE leased_by IS NULL AND deliveries = 0"
FINAL = """
SELECT id, state FROM pgqueue_archived_job
UNION ALL SELECT id, reason FROM pgqueue_dead_letter
"""
EFFECTS = "SELECT job FROM faults_effect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A settle strength, with the threads and the length of the jobs."""

    strength: str
    threads: int
    job_seconds: float = 0.0

    @property
    def bound(self) -> int:
        """The most jobs that a kill may repeat."""
        return self.threads + (HELD_MAX if self.strength == "batched" else 0)

    def __str__(self) -> str:
        milliseconds = f", {self.job_seconds * 1_000:g} ms" if self.job_seconds else ""
        return f"{self.strength} {self.threads}{milliseconds}"


CASES = tuple(
    Case(strength=strength, threads=threads, job_seconds=seconds)
    for strength in BACKLOG
    for threads in (1, 16, 64)
    for seconds in ((0.0, 0.005) if strength == "batched" else (0.0,))
)


@dataclass
class Book:
    """The starts of all jobs, and the processes that were killed."""

    starts: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    starts_by_pid: Counter[int] = field(default_factory=Counter)
    returned: set[tuple[int, int]] = field(default_factory=set)
    # For each kill, the process and its children.
    killed: list[set[int]] = field(default_factory=list)
    place: int = 0

    def read(self, path: Path) -> None:
        """Read the records that are new."""
        data = path.read_bytes()[self.place :] if path.exists() else b""
        whole = len(data) - len(data) % RECORD.size
        self.place += whole
        for job, pid, event in RECORD.iter_unpack(data[:whole]):
            if event == STARTED:
                self.starts[job].append(pid)
                self.starts_by_pid[pid] += 1
            else:
                self.returned.add((job, pid))

    def repeated(self) -> list[tuple[int, int]]:
        """Return (job, process) of every start after which the job started again."""
        return [(job, pid) for job, pids in self.starts.items() for pid in pids[:-1]]

    def repeats(self, *, returned: bool = False) -> list[int]:
        """Return the number of repeats of each kill; or only of jobs that returned."""
        count = Counter(
            pid
            for job, pid in self.repeated()
            if not returned or (job, pid) in self.returned
        )
        return [sum(count[pid] for pid in pids) for pids in self.killed]


def violations(
    case: Case,
    book: Book,
    rows: Sequence[tuple[int, str]],
    effects: Counter[int],
) -> Iterator[str]:
    """
    Yield the promises that did not hold.

    Args:
        case: What was measured.
        book: What the tasks recorded.
        rows: Id and final state of each row in the archive and the dead letters.
        effects: How many rows each atomic job has written.
    """
    states = dict(rows)
    if len(states) != len(rows):
        yield f"twice: {len(rows) - len(states)} jobs have more than one final state"
    if lost := book.starts.keys() - states:
        yield f"lost: {len(lost)} jobs ran and have no final state"
    if bad := Counter(state for state in states.values() if state != "succeeded"):
        yield f"failed: {dict(bad)}"
    dead = set().union(*book.killed)
    if living := [job for job, pid in book.repeated() if pid not in dead]:
        yield f"unexplained: {len(living)} jobs of living processes were repeated"
    if over := [count for count in book.repeats() if count > case.bound]:
        yield f"over: {len(over)} kills repeat more than {case.bound}: {max(over)}"
    if case.strength == "atomic" and (wrong := effects - Counter(list(states))):
        yield f"effects: {len(wrong)} jobs wrote their row more than once"
    if case.strength == "atomic" and (missing := states.keys() - effects):
        yield f"effects: {len(missing)} jobs did not write their row"


class Bench:
    """
    A build of a package and a cluster with its tables, to measure on.

    Args:
        build: Made by make_build().
        template: Made by make_template().
        folder: For the workers' logs and ledgers.
        seed: Decides the moments of the kills.
    """

    def __init__(self, build: Path, template: Path, folder: Path, seed: int) -> None:
        self._build = build
        self._template = template
        self._folder = folder
        self._seed = seed

    def measure(self, case: Case, kills: int) -> dict[str, Any]:
        """Kill a worker that many times, and return the figures."""
        began = time.monotonic()
        folder = self._folder / str(case).replace(" ", "-")
        folder.mkdir()
        rng = random.Random(f"{case}:{self._seed}")
        with Server(self._template) as server, server.connect() as connection:
            connection.execute(WITHOUT_HISTORY)
            told = {
                "databases": {"default": server.database},
                "pgqueue": {},
                "app": "tests.faults.windows",
            }
            worker = Worker(
                folder / "worker.log",
                build=self._build,
                environment=environment(self._build, folder, told),
                processes=1,
                threads=case.threads,
            )
            shift = Shift(case, connection, worker, folder / NAME)
            try:
                worker.wait_until_ready()
                wrong = [text for _ in range(kills) for text in shift.kill(rng)]
                wrong += shift.finish()
            finally:
                worker.destroy()
        repeats = sorted(shift.book.repeats())
        return {
            "case": str(case),
            "bound": case.bound,
            "kills": len(repeats),
            "jobs": len(shift.book.starts),
            "median": statistics.median(repeats),
            "p95": repeats[max(-(-len(repeats) * 95 // 100) - 1, 0)],
            "max": repeats[-1],
            "returned_max": max(shift.book.repeats(returned=True)),
            "seconds": round(time.monotonic() - began),
            "violations": wrong,
        }


class Shift:
    """One worker, killed many times."""

    def __init__(
        self,
        case: Case,
        connection: psycopg.Connection[tuple[Any, ...]],
        worker: Worker,
        path: Path,
    ) -> None:
        self._case = case
        self._connection = connection
        self._worker = worker
        self._path = path
        self.book = Book()

    def kill(self, rng: random.Random) -> Iterator[str]:
        """Kill the process that is at work, at a random moment."""
        backlog = BACKLOG[self._case.strength]
        if self._number(WAITING) < backlog:
            name = f"{TASKS}.{self._case.strength}"
            self._connection.execute(FEED, [name, self._case.job_seconds, backlog])
        pid = wait_for(self._at_work, READY_SECONDS, f"{self._case}: one is at work")
        assert pid is not None
        time.sleep(rng.uniform(*MOMENT_SECONDS))
        self.book.killed.append(_family(pid))
        os.kill(pid, signal.SIGKILL)
        if not self._number(WAITING):
            yield "idle: a process was idle when it was killed"

    def finish(self) -> list[str]:
        """Let everything end that has begun; return what is wrong."""

        def is_empty() -> bool:
            # A job that was handed back has a delivery, and stays.
            self._connection.execute(UNTOUCHED)
            return not self._number("SELECT count(*) FROM pgqueue_job")

        wait_for(is_empty, READY_SECONDS, "everything has ended")
        self.book.read(self._path)
        rows = self._connection.execute(FINAL).fetchall()
        effects = Counter(job for (job,) in self._connection.execute(EFFECTS))
        return list(violations(self._case, self.book, rows, effects))  # type: ignore[arg-type]

    def _at_work(self) -> int | None:
        """Return the process that runs jobs, once nothing is left of the last one."""
        time.sleep(LOOK_SECONDS)
        self.book.read(self._path)
        living = set(self._worker.children()) & self._worker.usual()
        for pid in living - set().union(*self.book.killed):
            starts = sum(self.book.starts_by_pid[one] for one in _family(pid))
            if starts >= self._case.threads and self._number(IS_CLEAN):
                return pid
        return None

    def _number(self, query: str) -> Any:
        return self._connection.execute(query).fetchall()[0][0]


def _family(pid: int) -> set[int]:
    """Return a process with its living descendants."""
    return {pid}.union(*map(_family, children_of(pid)))


def run(
    package: Path,
    folder: Path,
    *,
    seed: int,
    kills: int,
    words: list[str],
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Measure the cases that begin with one of *words*; return their figures."""
    build = make_build(package, folder / "build")
    bench = Bench(build, make_template(build, folder), folder, seed)
    figures = []
    for case in CASES:
        name = f"{str(case).replace(',', '')} "
        if words and not any(name.startswith(f"{word} ") for word in words):
            continue
        window = bench.measure(case, kills)
        say(
            "{case:<20} {kills:>4} kills: repeats median {median:g}, p95 {p95}, "
            "max {max} ({returned_max} of them had returned), bound {bound}; "
            "{jobs} jobs, {seconds} s".format(**window)
        )
        for text in window["violations"]:
            say(f"    {text}")
        figures.append(window)
    return figures
