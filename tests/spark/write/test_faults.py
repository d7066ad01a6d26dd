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
from pyspark import __version__
from pyspark.errors import PySparkException

from django_pgqueue.exceptions import SparkError
from django_pgqueue.postgres.embedded import start
from django_pgqueue.queues import fair
from django_pgqueue.queues.lanes import HINT
from django_pgqueue.spark.write import journal as journals
from django_pgqueue.spark.write import staged, two_phase
from django_pgqueue.spark.write.journal import Outcome, Write
from django_pgqueue.spark.write.reap import main, reap
from tests.faults.server import Server
from tests.harness.notices import heard_until_now
from tests.harness.waiting import wait_for
from tests.spark.conftest import ROOT, quick_start
from tests.spark.write.conftest import Held, jobs, journal, prepared, stages
from tests.spark.write.driver import ROWS

pytestmark = pytest.mark.spark

BOTH = pytest.mark.parametrize("commit", ["staged", "two-phase"])


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
        for pid in descendants(self.process.pid):
            os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait(30)


@pytest.fixture
def start_driver(
    dsn_file: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], Driver]]:
    """``start_driver("staged")`` starts one that writes."""
    started: list[Driver] = []

    def start(commit: str) -> Driver:
        options = quick_start(request.config.cache.mkdir("spark"), __version__)
        toplevel = ROOT / "django_pgqueue" / "spark" / "toplevel"
        module = "tests.spark.write.driver"
        told = [str(dsn_file), commit, str(tmp_path), options]
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
    driver = start_driver("staged")
    driver.wait_halfway(attempt=0)
    wait_for(lambda: stages(database), 10, "a stage")
    driver.kill()
    wait_for(lambda: writers(database) == 0, 30, "its sessions are gone")

    assert ["driver: open, rolled back"] == reap(server.url, stale_seconds=0)
    assert [] == stages(database)
    assert [] == jobs(database)
    assert [("staged", "rolled_back")] == journal(database, "mode, state")


@pytest.mark.slow
def test_a_driver_killed_when_all_is_prepared_leaves_no_job(
    start_driver, server, database, held
):
    """kill -9 between PREPARE and the journal: the reaper ends what was prepared."""
    driver = start_driver("two-phase")
    driver.go_on()
    held.wait(database)
    assert 2 == len(prepared(database))
    driver.kill()
    # PostgreSQL does not notice that its client is gone until the lock is free.
    held.release()
    wait_for(lambda: writers(database) == 0, 30, "its sessions are gone")

    assert ["driver: open, rolled back"] == reap(server.url, stale_seconds=0)
    assert [] == prepared(database)
    assert [] == jobs(database)


@pytest.mark.slow
@BOTH
def test_a_task_whose_worker_was_killed_is_retried_without_doubles(
    start_driver, database, commit
):
    """kill -9 of the Python processes of two tasks in the middle of their rows."""
    driver = start_driver(commit)
    for worker in workers_of(driver.wait_halfway(attempt=0)):
        os.kill(worker, signal.SIGKILL)
    driver.wait_halfway(attempt=1)
    driver.go_on()

    assert 0 == driver.process.wait(60)
    assert [(ROWS, ROWS)] == jobs_and_distinct(database)
    assert [("committed", ROWS)] == journal(database, "state, written")
    assert [] == stages(database)
    assert [] == prepared(database)


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in found for child in path.read_text().split()]


def descendants(pid: int) -> list[int]:
    """Return its children, and theirs."""
    found = children(pid)
    return found + [pid for child in found for pid in descendants(child)]


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


def test_a_crash_while_deciding_loses_no_prepared_row(spark, write, server, held):
    """In two phases, all survives: the driver comes back and commits."""
    with crashing(server, held):
        write(spark.range(0, 1_000, 1, 2), task="a.b", commit="two-phase")

    with server.connect() as again:
        assert 1_000 == len(jobs(again, "id"))
        assert [] == prepared(again)
        assert [("committed", 1_000)] == journal(again, "state, written")


# Attempts that do not count, and drivers that died between two statements ------------


@pytest.fixture
def two_phase_write(database) -> Write:
    """A write in two phases, of which no task has begun."""
    return Write(uuid4(), "orders", "two-phase", None, None)


def prepare(server: Server, write: Write, attempt: int, rows: int = 2) -> str:
    """Prepare jobs as a task does; return the id."""
    with server.connect() as connection:
        journals.begin(connection, write)
        preparer = two_phase.Preparer(connection, write, ("task", "queue"), attempt)
        preparer.add(f"a{attempt}\tmail\n".encode() * rows)
        preparer.prepare()
        return preparer.gid


def test_a_driver_that_died_before_it_decided_is_rolled_back(
    server, database, two_phase_write
):
    """Its prepared transactions are taken back, and its name is free again."""
    prepare(server, two_phase_write, 1)
    prepare(server, two_phase_write, 2)

    assert [] == reap(server.url)  # It may well be alive.
    assert 2 == len(prepared(database))
    assert ["orders: open, rolled back"] == reap(server.url, stale_seconds=0)

    assert [] == prepared(database)
    assert [] == jobs(database)
    journals.check_name(database, Write(uuid4(), "orders", "staged", None, None))


@pytest.mark.parametrize("committed", [0, 1, 2])
def test_a_driver_that_died_after_it_decided_is_finished(
    server, database, two_phase_write, committed
):
    """None, half or all of COMMIT PREPARED done: the rest is, and workers wake."""
    gids = [prepare(server, two_phase_write, attempt) for attempt in (1, 2)]
    stray = prepare(server, two_phase_write, 3)
    outcome = Outcome(rows=4, gids=gids, by_attempt={1: 2, 2: 2}, queues={"mail"})
    two_phase.decide(database, two_phase_write, outcome)
    for gid in gids[:committed]:
        two_phase.end(database, two_phase.COMMIT_PREPARED, gid)
    assert stray in prepared(database)
    with server.connect() as listener:
        (channel,) = listener.execute("SELECT pgqueue_channel()").fetchone()
        listener.execute(f'LISTEN "{channel}"')

        assert ["orders: committing, committed"] == reap(server.url)

        heard = heard_until_now(listener, channel)
    *queues, lanes = heard
    assert ["mail", f"{fair.HINT}mail"] == queues
    assert lanes.startswith(HINT)
    assert [("a1",), ("a1",), ("a2",), ("a2",)] == sorted(jobs(database, "task"))
    assert [] == prepared(database)
    assert [("committed", 4)] == journal(database, "state, written")
    assert [] == reap(server.url)


def test_a_task_that_prepares_too_late_takes_it_back(server, database, two_phase_write):
    """After the write was rolled back, nobody would end its transaction."""
    prepare(server, two_phase_write, 1)
    with server.connect() as late:
        preparer = two_phase.Preparer(late, two_phase_write, ("task", "queue"), 2)
        preparer.add(b"late\tmail\n")
        # A task that is at work keeps the reaper off.
        assert [] == reap(server.url, stale_seconds=0)
        database.execute(journals.ROLL_BACK, {"id": two_phase_write.id})

        with pytest.raises(SparkError, match="comes too late"):
            preparer.prepare()

    assert ["orders: rolled_back"] == reap(server.url)
    assert [] == prepared(database)
    assert [] == jobs(database)


def test_a_late_stray_is_swept_by_the_next_reaper(server, database, two_phase_write):
    """Killed between PREPARE and its look at the journal."""
    gid = prepare(server, two_phase_write, 1)
    two_phase.decide(database, two_phase_write, Outcome(rows=2, gids=[gid]))
    two_phase.finish(database, two_phase_write.id, [gid])
    database.execute("BEGIN")
    database.execute("INSERT INTO pgqueue_job (task) VALUES ('stray')")
    stray = f"{two_phase.prefix_of(two_phase_write.id)}9"
    database.execute(f"PREPARE TRANSACTION '{stray}'")

    assert ["orders: committed"] == reap(server.url)

    assert [] == prepared(database)
    assert [("a1",), ("a1",)] == jobs(database, "task")


def test_a_prepared_transaction_that_is_gone_fails_the_write(
    server, database, two_phase_write
):
    """Somebody rolled one back by hand: no half of the write is committed."""
    gids = [prepare(server, two_phase_write, attempt) for attempt in (1, 2)]
    two_phase.end(database, two_phase.ROLLBACK_PREPARED, gids[0])

    with pytest.raises(SparkError, match="rolled back by hand"):
        two_phase.decide(database, two_phase_write, Outcome(rows=4, gids=gids))

    assert [("open",)] == journal(database, "state")


def test_others_prepared_transactions_are_left_alone(server, database):
    """The reaper ends those of its own journal, and no others."""
    for gid in ("theirs", f"pgqueue:{uuid4().hex}:1"):
        database.execute("BEGIN")
        database.execute("INSERT INTO pgqueue_job (task) VALUES ('theirs')")
        database.execute(f"PREPARE TRANSACTION '{gid}'")

    assert [] == reap(server.url, stale_seconds=0)

    assert 2 == len(prepared(database))


def staged_write(database, *attempts: int) -> Write:
    """Stage two rows for each of the attempts of a new write."""
    write = Write(uuid4(), "orders", "staged", "public", None, ("task",))
    for attempt in attempts:
        staged.begin(database, write)
        stager = staged.Stager(database, write, attempt)
        stager.add(f"{stager.lead}a{attempt}\n".encode() * 2)
        stager.flush()
    return write


def test_rows_of_attempts_that_do_not_count_stay_behind(database):
    """A task was tried twice, or in two places: one of them is moved."""
    write = staged_write(database, 1, 2, 3)

    staged.commit(database, write, Outcome(rows=4, by_attempt={1: 2, 3: 2}), {})

    assert [("a1",), ("a1",), ("a3",), ("a3",)] == sorted(jobs(database, "task"))


def test_a_commit_that_is_repeated_moves_nothing_twice(database):
    """The driver lost its connection, and does not know what became of the commit."""
    write = staged_write(database, 1)
    outcome = Outcome(rows=2, by_attempt={1: 2})

    for _ in range(2):
        staged.commit(database, write, outcome, {})

    assert 2 == len(jobs(database))


def test_a_reaper_that_is_wrong_makes_a_write_fail_and_not_half(server, database):
    """A slow write was taken for a dead one."""
    write = staged_write(database, 1)
    reap(server.url, stale_seconds=0)

    with pytest.raises(SparkError, match="taken for dead"):
        staged.commit(database, write, Outcome(), {})
    with pytest.raises(SparkError, match="comes too late"):
        staged.begin(database, write)

    assert [] == jobs(database)


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


def test_two_phase_names_the_setting_that_it_needs(monkeypatch):
    """A server that cannot prepare transactions, as PostgreSQL is by default."""
    monkeypatch.setitem(start.PARAMETERS, "max_prepared_transactions", "0")

    with (
        Server() as server,
        server.connect() as connection,
        pytest.raises(SparkError, match="max_prepared_transactions is 0"),
    ):
        two_phase.check_server(connection)
