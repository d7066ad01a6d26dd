"""
Real workers: pgqueue_worker as a process of its own, on the test database.

Each is the leader of a process group, so that nothing of it outlives its test. What a
worker printed is shown when the test fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from tests.crashes.failpoints import Failpoint
from tests.harness import ledger
from tests.harness.fork_server import REPOSITORY, start
from tests.harness.ledger import Ledger
from tests.harness.waiting import wait_for

# For what happens within a second on an idle machine.
PATIENCE_SECONDS = 40.0

# A lease and a poll that no test outlives: what happens, happens for another reason.
NEVER = {"LEASE_SECONDS": 600, "POLL_INTERVAL_SECONDS": 600}

# Longer than any pause between two looks of a worker that has just run dry.
DRY_SECONDS = 0.6

# One row per place where a job is. There must be one, ever, and at the end no live one.
PLACES = """
SELECT id, 'live', NULL, crashes, deliveries, attempt FROM pgqueue_job
UNION ALL
SELECT id, 'archive', state, crashes, deliveries, attempt FROM pgqueue_archived_job
UNION ALL
SELECT id, 'dead', reason, crashes, deliveries, attempt FROM pgqueue_dead_letter
"""

# By what loops of a worker are called, and PGAPPNAME what its tasks open; not whoever
# waits for results, which this process may do, too.
END_SESSIONS = """
SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity
 WHERE datname = ANY(%(names)s) AND application_name LIKE 'pgqueue %%'
   AND application_name NOT LIKE 'pgqueue results %%'
   AND pid <> pg_backend_pid()
"""


class WorkerProcess:
    """A supervisor with its children, and what they print."""

    def __init__(
        self,
        log: Path,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self.popen = start(
                ["pgqueue_worker", *arguments], {**os.environ, **environment}, output
            )

    @property
    def pid(self) -> int:
        """Process id of the supervisor, and of the group."""
        return self.popen.pid

    def lines(self, pattern: str = "") -> list[str]:
        """Return the lines printed so far that match the regular expression."""
        text = self.log.read_text(errors="replace")
        return [line for line in text.splitlines() if re.search(pattern, line)]

    def wait_for_lines(
        self, pattern: str, count: int = 1, timeout: float = PATIENCE_SECONDS
    ) -> list[str]:
        """Return the matching lines once there are *count* of them."""

        def enough() -> list[str] | None:
            lines = self.lines(pattern)
            assert len(lines) >= count or self.popen.poll() is None, (
                f"it ended with {self.popen.returncode} before it printed {pattern!r}"
            )
            return lines if len(lines) >= count else None

        found = wait_for(enough, timeout, f"{count} lines {pattern!r} in {self.log}")
        assert found is not None
        return found

    def children(self) -> list[int]:
        """Return the process ids of the supervisor's living children."""
        return children_of(self.pid)

    def names(self) -> list[str]:
        """Return the names of the worker processes started so far."""
        return re.findall(r"started    worker=(\S+)", "\n".join(self.lines()))

    def signal(self, number: int) -> None:
        """Send a signal to the supervisor alone."""
        os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """Send a signal to the supervisor and all its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def wait(self, timeout: float = PATIENCE_SECONDS) -> int:
        """Return the exit status of the supervisor once it has ended."""
        wait_for(lambda: self.popen.poll() is not None, timeout, "the worker ends")
        return self.popen.wait()

    def stop(self, timeout: float = PATIENCE_SECONDS) -> int:
        """Stop it as an operator does and return its exit status."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def destroy(self) -> None:
        """Leave nothing of it, orphans included."""
        self.signal_group(signal.SIGCONT)
        self.signal_group(signal.SIGKILL)
        self.popen.wait(PATIENCE_SECONDS)
        wait_for(lambda: not group_exists(self.pid), what="its process group is gone")


def children_of(pid: int) -> list[int]:
    """Return the living children of a process; none if it is gone itself."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [child for child in map(int, text.split()) if is_alive(child)]


def is_alive(pid: int) -> bool:
    """Say whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def group_exists(pid: int) -> bool:
    """Say whether any process of the group still runs."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    # Zombies that nobody buries do not run.
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group, *_ = stat.read_text().rpartition(")")[2].split()
            if int(group) == pid and state not in {"Z", "X"}:
                return True
    return False


StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def start_worker(
    transactional_db: None, tmp_path: Path, the_ledger: Ledger
) -> Iterator[StartWorker]:
    """
    A factory of workers, ended with the test.

    ``start_worker("--queues", "mail", threads=2)`` returns once every process of it
    is ready to claim; ``wait=False`` at once. Other keywords: ``processes``;
    ``failpoint``; ``pgqueue``, keys of PGQUEUE; ``settings``, others of Django's;
    ``databases``, changes by alias; ``environment``, with PGQUEUE_TEST_FRESH for a new
    Python.
    """
    # What earlier tests rolled back would make the first looks dear, and a worker then
    # looks less often.
    with connections["default"].cursor() as cursor:
        cursor.execute("VACUUM pgqueue_job")
    started: list[WorkerProcess] = []

    def start_worker(
        *arguments: str,
        processes: int = 1,
        threads: int = 4,
        failpoint: Failpoint | None = None,
        pgqueue: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        databases: Mapping[str, Mapping[str, Any]] | None = None,
        environment: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> WorkerProcess:
        worker = WorkerProcess(
            tmp_path / f"worker-{len(started)}.log",
            [f"--processes={processes}", f"--threads={threads}", *arguments],
            environment={
                "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
                "PYTHONPATH": str(REPOSITORY),
                "PGQUEUE_TEST_WORKER": json.dumps(
                    {
                        "databases": _databases(databases or {}),
                        "pgqueue": {**NEVER, **(pgqueue or {})},
                        "settings": dict(settings or {}),
                    }
                ),
                ledger.PATH: str(the_ledger.path),
                "PGAPPNAME": "pgqueue task",
                **(failpoint.environment() if failpoint else {}),
                **(environment or {}),
            },
        )
        started.append(worker)
        if wait:
            worker.wait_for_lines(r"started    worker=", processes)
        return worker

    yield start_worker
    for worker in started:
        worker.destroy()
    for worker in started:
        # pytest shows it with the failure, and only then.
        print(f"--- {worker.log.name}, pid {worker.pid}, {worker.popen.returncode}")  # noqa: T201
        print(worker.log.read_text(errors="replace"))  # noqa: T201
    if started:
        wait_for(sessions_have_ended, what="the server is done with the workers")


def sessions_have_ended() -> bool:
    """
    End those of killed workers on the server, too.

    A statement that one has sent goes on: where it waits for the tables to be emptied
    after this test, the next one would find its row.
    """
    names = [each.settings_dict["NAME"] for each in connections.all()]
    with connections["default"].cursor() as cursor:
        cursor.execute(END_SESSIONS, {"names": names})
        return not cursor.fetchall()


@pytest.fixture
def the_ledger(tmp_path: Path) -> Ledger:
    """What the tasks of this test wrote."""
    return Ledger(tmp_path / "ledger")


def _databases(changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a worker must change in DATABASES to share the test's databases."""
    ours = {alias: connections[alias].settings_dict["NAME"] for alias in connections}
    names = dict.fromkeys(changes, ours["default"]) | ours
    return {
        alias: {"NAME": name, **changes.get(alias, {})} for alias, name in names.items()
    }


class Place:
    """Where a job is, in words a failure shows."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        _, self.table, self.state, self.crashes, self.deliveries, self.attempt = row

    def __repr__(self) -> str:
        return (
            f"{self.table}/{self.state} crashes={self.crashes} "
            f"deliveries={self.deliveries} attempt={self.attempt}"
        )


def places(cursor: Any = None) -> dict[int, list[Place]]:
    """Return every row of every job, over queue, archive and dead letters."""
    if cursor is None:
        with connections["default"].cursor() as ours:
            return places(ours)
    found: dict[int, list[Place]] = {}
    cursor.execute(PLACES)
    for row in cursor.fetchall():
        found.setdefault(row[0], []).append(Place(row))
    return found


def wait_until_final(
    ids: Sequence[int], timeout: float = PATIENCE_SECONDS, cursor: Any = None
) -> dict[int, Place]:
    """
    Return the one final row of each job, once none of them is live any more.

    Fails at once when a job is nowhere or in two places: at every moment, a job is in
    exactly one table.
    """
    asked = set(ids)

    def settled() -> bool:
        found = {job: rows for job, rows in places(cursor).items() if job in asked}
        lost = asked - set(found)
        assert not lost, f"lost: {sorted(lost)}"
        twice = {job: rows for job, rows in found.items() if len(rows) > 1}
        assert not twice, f"in two places: {twice}"
        return all(rows[0].table != "live" for rows in found.values())

    def left() -> str:
        tables = Counter(repr(rows[0]) for job, rows in places(cursor).items())
        return f"all of {len(asked)} jobs are final: {tables}"

    try:
        wait_for(settled, timeout)
    except AssertionError as error:
        raise AssertionError(f"{error}; {left()}") from None
    return {job: rows[0] for job, rows in places(cursor).items() if job in asked}


def wait_until_dry(the_ledger: Ledger) -> None:
    """Return when the workers have looked, found nothing, and do not look again."""

    def dry() -> bool:
        claims = the_ledger.entries("claim")
        return bool(claims) and time.monotonic() - claims[-1].at > DRY_SECONDS

    wait_for(dry, what="the workers ran dry")


def enqueue(task: Any, count: int = 1, **kwargs: Any) -> list[int]:
    """Enqueue *count* equal jobs of a task, in one statement; return their ids."""
    return [result.id for result in task.bulk([kwargs] * count)]


def live_row(job: int, *columns: str) -> tuple[Any, ...] | None:
    """Return columns of a job that is still in the queue; None when it is not."""
    with connections["default"].cursor() as cursor:
        cursor.execute(
            f"SELECT {', '.join(columns)} FROM pgqueue_job WHERE id = %s", [job]
        )
        row: tuple[Any, ...] | None = cursor.fetchone()
    return row
