"""What drivers, tasks and servers leave that die in the middle of a write."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import uuid4

import pytest
from psycopg.errors import IdleInTransactionSessionTimeout
from pyspark.errors import PySparkException

from django_pgqueue.exceptions import SparkError
from django_pgqueue.spark.write import session, staged
from django_pgqueue.spark.write.journal import Outcome, Write
from django_pgqueue.spark.write.reap import main, reap
from tests.faults.server import Server
from tests.spark.write.conftest import Held, jobs, journal, stages
from tests.spark.write.test_messages import topic

pytestmark = pytest.mark.spark

__all__ = ["topic"]


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
        row = f"{staged.lead_of(write, attempt)}a{attempt}\n"
        staged.store(database, write, row * 2)
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
