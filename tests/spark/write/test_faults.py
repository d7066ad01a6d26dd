"""What drivers, tasks and servers leave that die in the middle of a write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg.errors import IdleInTransactionSessionTimeout
from pyspark import __version__
from pyspark.errors import PySparkException

from django_pgqueue.exceptions import SparkError
from django_pgqueue.spark.write import session, staged
from django_pgqueue.spark.write.journal import Outcome, Write
from django_pgqueue.spark.write.reap import main, reap
from tests.faults.server import Server
from tests.harness.process_tree import children, descendants, tell
from tests.harness.waiting import wait_for
from tests.spark.conftest import ROOT, quick_start
from tests.spark.write.conftest import Held, jobs, journal, stages
from tests.spark.write.driver import ROWS
from tests.spark.write.test_messages import messages, topic

pytestmark = pytest.mark.spark

__all__ = ["topic"]


class Driver:
    """A process with a Spark session of its own, in a group of its own."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self._folder = folder

    def wait_halfway(self, attempt: int) -> list[int]:
        """Wait until both tasks are; return the processes that compute them."""
        said = [self._folder / f"{task}-{attempt}" for task in (0, 1)]
        wait_for(
            lambda: all(path.exists() for path in said) or self.process.poll(),
            60,
            "both tasks are halfway",
        )
        assert self.process.poll() is None, (self._folder / "stderr").read_text()
        return [int(path.read_text()) for path in said]

    def go_on(self) -> None:
        """Let first attempts go on."""
        (self._folder / "go").write_text("")

    def kill(self) -> None:
        """Kill it with its Java and all Pythons, as the loss of a machine would."""
        tell([*descendants(self.process.pid), self.process.pid], signal.SIGKILL)
        self.process.wait(30)


@pytest.fixture
def start_driver(
    dsn_file: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Driver]]:
    """``start_driver()`` starts one that writes jobs, or what it is told."""
    started: list[Driver] = []

    def start(what: str = "task=a.b") -> Driver:
        options = quick_start(request.config.cache.mkdir("spark"), __version__)
        toplevel = ROOT / "django_pgqueue" / "spark" / "toplevel"
        module = "tests.spark.write.driver"
        told = [str(dsn_file), str(tmp_path), options, what]
        stderr = stack.enter_context((tmp_path / "stderr").open("a"))
        process = subprocess.Popen(
            [sys.executable, "-m", module, *told],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{toplevel}"},
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
        started.append(Driver(process, tmp_path))
        return started[-1]

    with ExitStack() as stack:
        yield start
    for driver in started:
        if driver.process.poll() is None:
            driver.kill()


def writers(database: psycopg.Connection[tuple[object, ...]]) -> int:
    """Return how many sessions of writing tasks and drivers there are."""
    row = database.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = 'pgqueue spark: write'"
    ).fetchone()
    assert row is not None
    return int(str(row[0]))


@pytest.mark.slow
def test_a_driver_killed_while_its_tasks_write_leaves_no_job(
    start_driver, server, database
):
    """kill -9 when half of the rows are staged; the reaper drops them."""
    driver = start_driver()
    driver.wait_halfway(attempt=0)
    wait_for(lambda: stages(database), 10, "a stage")
    driver.kill()
    wait_for(lambda: writers(database) == 0, 30, "its sessions are gone")

    assert ["driver: open, rolled back"] == reap(server.url, stale_seconds=0)
    assert [] == stages(database)
    assert [] == jobs(database)
    assert [("rolled_back",)] == journal(database, "state")


@pytest.mark.slow
def test_a_driver_killed_while_it_stages_messages_publishes_none(
    start_driver, server, database, topic, spark, write
):
    """Nor has a subscriber any job. Written again, each is published once, with one job
    for who subscribes to it."""
    driver = start_driver(f"topic={topic}")
    driver.wait_halfway(attempt=0)
    wait_for(lambda: stages(database), 10, "a stage")
    driver.kill()
    wait_for(lambda: writers(database) == 0, 30, "its sessions are gone")
    assert ["driver: open, rolled back"] == reap(server.url, stale_seconds=0)
    assert [[], []] == [messages(database, "id"), jobs(database)]

    rows = spark.range(ROWS).selectExpr("id", "'x' AS text")
    write(rows, topic=topic, name="driver")

    assert [(ROWS, ROWS)] == database.execute(
        "SELECT count(*), count(DISTINCT payload ->> 'id') FROM pgqueue_message"
    ).fetchall()
    assert [("shop.count", ROWS, ROWS)] == database.execute(
        "SELECT task, count(*), count(DISTINCT message_id) FROM pgqueue_job GROUP BY 1"
    ).fetchall()
    assert [] == stages(database)


@pytest.mark.slow
def test_a_task_whose_worker_was_killed_is_retried_without_doubles(
    start_driver, database
):
    """kill -9 of the Python processes of two tasks in the middle of their rows."""
    driver = start_driver()
    for worker in workers_of(driver.wait_halfway(attempt=0)):
        os.kill(worker, signal.SIGKILL)
    driver.wait_halfway(attempt=1)
    driver.go_on()

    assert 0 == driver.process.wait(60)
    assert [(ROWS, ROWS)] == jobs_and_distinct(database)
    assert [("committed", ROWS)] == journal(database, "state, written")
    assert [] == stages(database)


def workers_of(pids: list[int]) -> set[int]:
    """Return all children of the process that forked *pids*."""
    daemon = Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1]
    return set(children(int(daemon)))


def jobs_and_distinct(database):
    return database.execute(
        "SELECT count(*), count(DISTINCT kwargs ->> 'id') FROM pgqueue_job"
    ).fetchall()


@contextmanager
def crashing(server: Server, held: Held) -> Iterator[None]:
    """Crash the server, and start it, when the driver inside is about to decide."""

    def crash() -> None:
        with server.connect() as database:
            held.wait(database)
        server.end(crash=True)
        server.start()

    # Spark knows its session by the thread, so the write stays in this one.
    with ThreadPoolExecutor(1) as aside:
        crashed = aside.submit(crash)
        yield
        crashed.result(60)


def test_a_stage_emptied_by_a_crash_is_noticed(spark, write, server, held):
    """PostgreSQL crashes between the tasks' end and the commit: nothing is written."""
    with (
        crashing(server, held),
        pytest.raises(PySparkException, match="crash of PostgreSQL empties unlogged"),
    ):
        write(spark.range(0, 1_000, 1, 2), task="a.b", name="crash")

    with server.connect() as again:
        assert [] == jobs(again)
        assert [("rolled_back",)] == journal(again, "state")
        assert [] == stages(again)


# Attempts that do not count, and drivers that died between two statements ------------


def staged_write(database, *attempts: int) -> Write:
    """Stage two rows for each of the attempts of a new write."""
    write = Write(uuid4(), "orders", "public", None, ("task",))
    for attempt in attempts:
        staged.begin(database, write)
        stager = staged.Stager(database, write, attempt)
        stager.add(f"{stager.lead}a{attempt}\n".encode() * 2)
        stager.flush()
    return write


def test_rows_of_attempts_that_do_not_count_stay_behind(database):
    """A task was tried twice, or in two places: one of them is moved."""
    write = staged_write(database, 1, 2, 3)

    staged.commit(
        database, write, Outcome(rows=4, by_attempt={1: 2, 3: 2}), staged.Jobs({})
    )

    assert [("a1",), ("a1",), ("a3",), ("a3",)] == sorted(jobs(database, "task"))


def test_a_commit_that_is_repeated_moves_nothing_twice(database):
    """The driver lost its connection, and does not know what became of the commit."""
    write = staged_write(database, 1)
    outcome = Outcome(rows=2, by_attempt={1: 2})

    for _ in range(2):
        staged.commit(database, write, outcome, staged.Jobs({}))

    assert 2 == len(jobs(database))


def test_a_reaper_that_is_wrong_makes_a_write_fail_and_not_half(server, database):
    """A slow write was taken for a dead one."""
    write = staged_write(database, 1)
    reap(server.url, stale_seconds=0)

    with pytest.raises(SparkError, match="taken for dead"):
        staged.commit(database, write, Outcome(), staged.Jobs({}))
    with pytest.raises(SparkError, match="comes too late"):
        staged.begin(database, write)

    assert [] == jobs(database)


def test_who_is_frozen_while_it_commits_keeps_nobody_from_the_name(
    server, database, monkeypatch
):
    """The server ends its session, so that another can roll the write back; whoever
    wakes up commits nothing."""
    monkeypatch.setattr(session, "IDLE_SECONDS_MAX", 1)
    write = staged_write(database, 1)
    told = []

    def freeze(connection, write, outcome):
        told.extend(reap(server.url, name="orders"))
        return staged.Jobs({})(connection, write, outcome)

    with (
        server.connect() as frozen,
        pytest.raises(IdleInTransactionSessionTimeout, match="idle-in-transaction"),
    ):
        staged.commit(frozen, write, Outcome(rows=2, by_attempt={1: 2}), freeze)

    assert ["orders: open, rolled back"] == told
    assert [[], []] == [jobs(database), stages(database)]
    with pytest.raises(SparkError, match="taken for dead"):
        staged.commit(database, write, Outcome(), staged.Jobs({}))


def test_a_write_is_rolled_back_by_its_name(
    server, database, dsn_file, monkeypatch, capsys
):
    """python -m django_pgqueue.spark.write.reap --name, whatever its age."""
    staged_write(database, 1)
    monkeypatch.setenv("PGQUEUE_DSN", server.url)

    assert 0 == main(["--name", "other"])
    assert "Nothing was left.\n" == capsys.readouterr().out
    assert 0 == main(["--name", "orders"])

    assert "orders: open, rolled back\n" == capsys.readouterr().out
    assert [] == stages(database)
