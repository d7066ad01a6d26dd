"""Measure: kill a worker process again and again, and count what is run twice."""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from tests.faults.fleet import Worker
from tests.faults.server import Server, environment
from tests.faults.windows.book import Book
from tests.harness.proxy import Proxy
from tests.harness.waiting import wait_for
from tests.harness.worker_process import children_of

TASKS = "tests.faults.windows.tasks"

# After the process is at work: the moment of the kill is drawn from these seconds.
MOMENT_SECONDS = (0.02, 0.25)

# Jobs that wait at least when a process is killed, by strength: none may run dry.
BACKLOG = {"immediate": 8_000, "batched": 20_000, "atomic": 6_000}

# What a process may hold besides what it runs, whatever happens: the jobs of one write
# (BATCH_ROWS_MAX of worker/settle/settler.py) and those claimed ahead (PREFETCH_MAX of
# worker/claim/capacity.py).
HELD_MAX = 2_000

# Jobs in a second that a process may run at most.
HOLE_RATE = 15_000

READY_SECONDS = 120.0
LOOK_SECONDS = 0.05

FEED = """
INSERT INTO pgqueue_job (task, kwargs)
SELECT %s, jsonb_build_object('seconds', %s::float8) FROM generate_series(1, %s)
"""
# As in life: no trigger that remembers each change.
WITHOUT_HISTORY = """
DROP TRIGGER faults ON pgqueue_job;
DROP TRIGGER faults ON pgqueue_archived_job;
DROP TRIGGER faults ON pgqueue_dead_letter
"""
WAITING = "SELECT count(*) FROM pgqueue_job WHERE leased_by IS NULL"
# What an earlier kill has left: jobs to be run alone, leases of a dead process.
LEFT = """
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
    """What is measured."""

    strength: str
    threads: int
    job_seconds: float = 0.0
    # Before the kill: nothing passes of connections whose name begins so ("": of
    # all), for so many seconds.
    hole: str | None = None
    hole_seconds: float = 0.0

    @property
    def bound(self) -> int:
        """The most jobs that a kill may repeat."""
        return self.threads + (HELD_MAX if self.strength == "batched" else 0)

    def __str__(self) -> str:
        words = [self.strength, str(self.threads)]
        if self.job_seconds:
            words.append(f"{self.job_seconds * 1_000:g} ms")
        if self.hole is not None:
            words.append(f"{self.hole or 'database'} away {self.hole_seconds:g} s")
        return ", ".join([" ".join(words[:2]), *words[2:]])


CASES = (
    *(Case(strength="immediate", threads=threads) for threads in (1, 16, 64)),
    *(
        Case(strength="batched", threads=threads, job_seconds=seconds)
        for threads in (1, 16, 64)
        for seconds in (0.0, 0.005)
    ),
    *(Case(strength="atomic", threads=threads) for threads in (1, 16, 64)),
)
# The database is away for a while, and then the process dies. A fiftieth of the kills.
AWAY = tuple(
    Case(strength=strength, threads=16, hole=hole, hole_seconds=20.0)
    for strength in ("immediate", "batched")
    for hole in ("", "pgqueue settler")
)
AWAY_SHARE = 0.02


class Kill(NamedTuple):
    """What one kill has caused."""

    repeats: int  # Jobs of the dead process that were started again.
    returned: int  # Of these: their function had returned.


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What was measured."""

    case: Case
    kills: list[Kill]
    jobs: int  # Different ones that ran.
    seconds: float
    violations: dict[str, str]  # What must not be, by kind.

    @property
    def repeats(self) -> list[int]:
        """The repeats of each kill, ascending."""
        return sorted(kill.repeats for kill in self.kills)

    def told(self) -> dict[str, Any]:
        """Return the figures."""
        repeats = self.repeats
        return {
            "case": str(self.case),
            "bound": self.case.bound,
            "kills": len(repeats),
            "jobs": self.jobs,
            "median": statistics.median(repeats),
            "p95": repeats[max(-(-len(repeats) * 95 // 100) - 1, 0)],
            "max": repeats[-1],
            "returned_max": max(kill.returned for kill in self.kills),
            "repeats": sum(repeats),
            "seconds": round(self.seconds, 1),
            "violations": self.violations,
        }


def measure(
    case: Case, *, kills: int, seed: int, build: Path, folder: Path, template: Path
) -> Window:
    """
    Kill a worker of *build* so many times.

    Args:
        case: Strength, threads, and what is away meanwhile.
        kills: How often.
        seed: Decides the moments.
        build: A folder with the package under test, and ``tests``.
        folder: A new one, for the book and the log.
        template: A cluster with the tables of the build.
    """
    began = time.monotonic()
    folder.mkdir(parents=True)
    rng = random.Random(f"{case}:{seed}")
    with Server(template) as server, server.connect() as connection:
        connection.execute(WITHOUT_HISTORY)
        with _proxy(server) as proxy, _worker(case, server, proxy, build, folder) as w:
            shift = _Shift(case, connection, w, Book(folder))
            for _ in range(kills):
                shift.kill(rng, proxy)
            violations = shift.finish()
    return Window(
        case=case,
        kills=shift.kills(),
        jobs=len(shift.book.jobs()),
        seconds=time.monotonic() - began,
        violations=violations,
    )


class _Shift:
    """One worker, killed many times."""

    def __init__(
        self,
        case: Case,
        connection: psycopg.Connection[tuple[Any, ...]],
        worker: Worker,
        book: Book,
    ) -> None:
        self._case = case
        self._connection = connection
        self._worker = worker
        # Of each kill, whom it ended.
        self._killed: list[set[int]] = []
        self._violations: dict[str, str] = {}
        self.book = book

    def kill(self, rng: random.Random, proxy: Proxy) -> None:
        """Kill the process that is at work, at a random moment."""
        self._feed()
        worker = self._wait_until_at_work()
        time.sleep(rng.uniform(*MOMENT_SECONDS))
        hole = self._case.hole
        if hole is not None:
            proxy.open_hole(hole.encode())
            time.sleep(self._case.hole_seconds)
        self._killed.append({worker, *_offspring(worker)})
        os.kill(worker, signal.SIGKILL)
        if hole is not None:
            # What the dead process has sent is gone with it.
            for passage in proxy.passages(hole.encode()):
                passage.close()
            proxy.close_hole()
        if not self._number(WAITING):
            self._violations["idle"] = "a process was idle when it was killed"

    def finish(self) -> dict[str, str]:
        """Let everything end that has begun; return what must not be."""
        self._connection.execute(UNTOUCHED)
        wait_for(self._is_empty, READY_SECONDS, "everything has ended")
        self.book.read()
        return {**self._violations, **dict(self._wrong())}

    def kills(self) -> list[Kill]:
        """Return what each kill has repeated."""
        repeats: Counter[int] = Counter()
        returned: Counter[int] = Counter()
        for execution in self.book.repeated():
            repeats[execution.pid] += 1
            returned[execution.pid] += execution.has_returned
        return [
            Kill(sum(repeats[pid] for pid in pids), sum(returned[pid] for pid in pids))
            for pids in self._killed
        ]

    def _feed(self) -> None:
        want = BACKLOG[self._case.strength]
        # What a process might run meanwhile, if nothing held it back.
        want += int(self._case.hole_seconds * HOLE_RATE)
        if self._number(WAITING) < want:
            task = f"{TASKS}.{self._case.strength}"
            self._connection.execute(FEED, [task, self._case.job_seconds, want])

    def _wait_until_at_work(self) -> int:
        """Return the process once it runs jobs, and nothing is left of the last."""

        def at_work() -> int | None:
            time.sleep(LOOK_SECONDS)
            self.book.read()
            dead = set().union(*self._killed)
            living = set(self._worker.children()) & self._worker.usual()
            for pid in living - dead:
                ours = {pid, *_offspring(pid)}
                starts = sum(self.book.starts_by_pid[one] for one in ours)
                if starts >= self._case.threads and self._number(LEFT):
                    return pid
            return None

        pid = wait_for(at_work, READY_SECONDS, f"{self._case}: a process is at work")
        assert pid is not None
        return pid

    def _is_empty(self) -> bool:
        # What was handed back was touched; only what never was is taken away.
        self._connection.execute(UNTOUCHED)
        return not self._number("SELECT count(*) FROM pgqueue_job")

    def _wrong(self) -> Iterator[tuple[str, str]]:
        rows = self._connection.execute(FINAL).fetchall()
        states = dict(rows)
        if len(states) != len(rows):
            yield (
                "final",
                f"{len(rows) - len(states)} jobs have more than one final state",
            )
        lost = self.book.jobs() - set(states)
        if lost:
            yield "lost", f"{len(lost)} jobs ran and have no final state"
        bad = Counter(state for state in states.values() if state != "succeeded")
        if bad:
            yield "failed", f"jobs did not succeed: {dict(bad)}"
        dead = set().union(*self._killed)
        unexplained = [e for e in self.book.repeated() if e.pid not in dead]
        if unexplained:
            yield (
                "unexplained",
                f"{len(unexplained)} jobs of living processes were repeated",
            )
        bound = self._case.bound
        over = [kill.repeats for kill in self.kills() if kill.repeats > bound]
        if over:
            yield (
                "over",
                f"{len(over)} kills repeat more than {bound} jobs: {max(over)}",
            )
        if self._case.strength == "atomic":
            effects = Counter(job for (job,) in self._connection.execute(EFFECTS))
            twice = sum(count > 1 for count in effects.values())
            if twice:
                yield "twice", f"{twice} jobs have written their row more than once"
            if set(effects) != set(states):
                yield (
                    "without",
                    f"{len(set(effects) ^ set(states))} jobs without their one row",
                )

    def _number(self, query: str) -> Any:
        row = self._connection.execute(query).fetchone()
        assert row is not None
        return row[0]


def _offspring(pid: int) -> set[int]:
    """Return the living children of a process, and theirs."""
    children = set(children_of(pid))
    return children.union(*map(_offspring, children))


@contextmanager
def _proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server=server.address) as proxy:
        yield proxy


@contextmanager
def _worker(
    case: Case, server: Server, proxy: Proxy, build: Path, folder: Path
) -> Iterator[Worker]:
    database = server.database
    if case.hole is not None:
        database = {**database, **proxy.database}
    told = {"databases": {"default": database}, "pgqueue": {}}
    worker = Worker(
        folder / "worker.log",
        build=build,
        environment={
            **environment(build, folder, told),
            "DJANGO_SETTINGS_MODULE": "tests.faults.windows.settings",
        },
        processes=1,
        threads=case.threads,
        arguments=[],
    )
    try:
        worker.wait_until_ready()
        yield worker
    finally:
        worker.destroy()
