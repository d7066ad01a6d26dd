"""Fixtures and settings of the whole suite. Helpers to import stand beside it."""

from __future__ import annotations

import compileall
import importlib.util
import math
import os
import platform
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import django
import hypothesis
import psycopg
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from django.db import connections
from django.test import TransactionTestCase
from psycopg import sql

import django_pgqueue
from django_pgqueue.postgres import wake
from django_pgqueue.postgres.connect import connect, connection_params
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.spark.job import declared_jobs
from tests.harness import seeds
from tests.harness.databases import wait_until_left
from tests.harness.durations import Recorder, longest_first
from tests.harness.hanging import ENDING_SECONDS, ended_if_it_hangs, renewed
from tests.harness.notices import heard_until_now
from tests.harness.waiting import patience
from tests.spark.one_session import ONE

Cursor = psycopg.Cursor[tuple[Any, ...]]

# What a hanging test is cut off with, long before pytest's own time-out.
STATEMENT_TIMEOUT = "SET statement_timeout = '60s'"

# Every table that has a page, with rows or with dead ones; a partition by itself. The
# size of its file tells that without opening the table, which takes a new session most
# of the time, but not everybody may ask for it.
FILLED_TABLES = """
SELECT string_agg(c.oid::regclass::text, ', ')
  FROM pg_class c
 WHERE c.relkind = 'r' AND c.relnamespace = to_regnamespace('public')
   AND c.relname NOT IN ('django_migrations', 'django_content_type', 'auth_permission')
   AND CASE WHEN has_function_privilege('pg_stat_file(text, boolean)', 'EXECUTE')
            THEN (pg_stat_file(pg_relation_filepath(c.oid), true)).size
            ELSE pg_relation_size(c.oid) END > 0
"""

# Days of the log that are over: tests that publish in the past have made them.
PAST_LOG_DAYS = """
SELECT string_agg(inhrelid::regclass::text, ', ') FROM pg_inherits
 WHERE inhparent = to_regclass('pgqueue_message') AND NOT inhdetachpending
   AND inhrelid::regclass::text ~ '^pgqueue_message_[0-9]{8}$'
   AND right(inhrelid::regclass::text, 8)
       < to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')
"""

# Of these days later tests need today's.
MISSING_DAYS = """
SELECT string_agg(name, ', ')
  FROM unnest(ARRAY['pgqueue_message_', 'pgqueue_archived_job_']) prefix,
       LATERAL (SELECT prefix || to_char(clock_timestamp() AT TIME ZONE 'UTC',
                                         'YYYYMMDD')) day(name)
 WHERE pg_partition_root(to_regclass(name)) IS NULL
"""

# The marks that all tests of a module have.
OF_ALL = re.compile(
    r"^pytestmark = (\[[^\]]*)?pytest\.mark\.(slow|spark)\b", re.MULTILINE
)

# What pytest imports, and hardly anybody else.
TEST_MODULE = re.compile(r"/(test_\w+|conftest)\.py$")

IS_SPARK_LEFT_OUT = (
    importlib.util.find_spec("pyspark") is None
    and os.environ.get("PGQUEUE_REQUIRE_ALL") != "1"
)

# How long an example takes says nothing on a machine that does something else as well.
hypothesis.settings.register_profile("tests", deadline=None, max_examples=25)
hypothesis.settings.load_profile("tests")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """
    Do not import modules of which ``-m`` selects no test.

    Each process of a run would need seconds for them. Without pyspark, modules that may
    import it at their top are left out as well.
    """
    if not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text("utf-8")
    of_all = {mark for _, mark in OF_ALL.findall(text)}
    expression = config.option.markexpr
    if IS_SPARK_LEFT_OUT and "spark" in of_all:
        return True
    for mark in ("slow", "spark"):
        selected = re.match(rf"([^()]* and )?(not )?{mark}( and |$)", expression)
        if selected and (mark in of_all if selected[2] else mark not in text):
            return True
    return None


# Folders whose tests start real workers, or a browser: the mark "whole".
WHOLE = tuple(
    Path(__file__).parent / name for name in ("acceptance", "browser", "crashes")
)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what takes a whole system, of which other versions get a part."""
    if any(item.path.is_relative_to(folder) for folder in WHOLE):
        item.add_marker("whole")


def give_time(item: pytest.Item) -> float:
    """Give a test on a busy machine as much more time before it is cut off: so much."""
    mark = item.get_closest_marker("timeout")
    told = item.config.getoption("timeout", None)
    usual = item.config.getini("timeout") if told is None else told
    seconds = float(mark.args[0] if mark else usual) * patience()
    item.add_marker(pytest.mark.timeout(seconds), append=False)
    return seconds


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End a test that hangs, and name it."""
    seconds = give_time(item) + ENDING_SECONDS
    # Not the one that pytest captures.
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    with ended_if_it_hangs(seconds, stderr):
        return (yield)


# A shell has what it starts in the background ignore Ctrl+C, and so would workers, or
# some of them: whatever is forked before a test has set it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Compile for those that tests start; record how long files take, if asked to."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    # Where PYTHONDONTWRITEBYTECODE is set, each process would compile all anew.
    compileall.compile_dir(django_pgqueue.__path__[0], quiet=2)
    compileall.compile_dir(Path(__file__).parent, rx=TEST_MODULE, quiet=2)
    if os.environ.get("PGQUEUE_RECORD_DURATIONS") == "1":
        config.pluginmanager.register(Recorder())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """
    Keep what pytest makes of the modules of tests, whatever the environment says.

    It takes most of the time until the first test, in each process of each run.
    """
    with patch.object(sys, "dont_write_bytecode", new=False):
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no process waits at the end."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        longest_first(items)


def pytest_exception_interact(call: pytest.CallInfo[None]) -> None:
    """Give the next test of Spark a new session after one that was cut off."""
    if call.excinfo is not None and "from pytest-timeout" in str(call.excinfo.value):
        ONE.cut_off()


@pytest.fixture(scope="session")
def django_db_modify_db_settings_xdist_suffix() -> None:
    """Keep the names of settings.py, which know the process already."""


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """
    Have the databases empty at first, and removed when nobody is in them any more.

    Whatever modules of tests declare was stored as they were made: its rows would be
    there until the first test that empties the tables.
    """
    names = {connections[alias].settings_dict["NAME"] for alias in connections}
    with django_db_blocker.unblock():
        for alias in connections:
            with connections[alias].cursor() as cursor:
                cursor.execute(FILLED_TABLES)
                (tables,) = cursor.fetchone()
                if tables:
                    cursor.execute(f"TRUNCATE {tables} CASCADE")
    yield
    with django_db_blocker.unblock():
        connections.close_all()
        with connections["default"]._nodb_cursor() as cursor:  # type: ignore[attr-defined]
            for name in names:
                wait_until_left(cursor, name)


@pytest.fixture(scope="session", autouse=True)
def _built_in_pipeline_jobs() -> None:
    """Have them loaded before a test puts back what jobs there were."""
    declared_jobs()


def pytest_report_header() -> list[str]:
    """Say what the suite runs on."""
    try:
        with connect("default", name="tests: header") as connection:
            server = connection.info.parameter_status("server_version")
    except psycopg.OperationalError as error:
        server = f"cannot be reached: {error}"
    spark = "; without pyspark, so without its tests" if IS_SPARK_LEFT_OUT else ""
    told = (
        f"PostgreSQL {server}, Django {django.__version__}, "
        f"psycopg {psycopg.__version__}, Python {platform.python_version()}{spark}"
    )
    if IS_SPARK_LEFT_OUT:
        left_out = "LEFT OUT: the tests of Spark, since pyspark is not installed"
        return [told, seeds.line(), left_out]
    return [told, seeds.line()]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    """Say, where a test with a seed has failed, how to run it with that seed again."""
    report = yield
    mark = item.get_closest_marker("seed")
    if mark is not None and report.failed:
        report.sections.append(("again", seeds.again(mark.args[0], item.nodeid)))
    return report


def _truncate_filled_tables(case: TransactionTestCase) -> None:
    """
    Empty what a test with transaction=True has written, within milliseconds.

    Django's own way flushes all tables and makes all content types and permissions
    anew. CASCADE: to the empty tables that refer to a filled one, users' groups say.
    A lock_timeout: a test that leaves a transaction open fails by itself.
    """
    aliases = list(case._databases_names(include_mirrors=False))
    cut_off = [alias for alias in aliases if renewed(connections[alias])]
    for alias in aliases:
        with connections[alias].cursor() as cursor:
            cursor.execute(
                f"SELECT ({FILLED_TABLES}), ({PAST_LOG_DAYS}), ({MISSING_DAYS})"
            )
            tables, past, missing = cursor.fetchone()
            if tables:
                cursor.execute(
                    "SET lock_timeout = '10s';"
                    f"TRUNCATE {tables} CASCADE;"
                    + (f"DROP TABLE IF EXISTS {past};" if past else "")
                    + "RESET lock_timeout"
                )
            assert not missing, f"the test has left {alias} without {missing}"
    assert not cut_off, f"the test was cut off within a statement on {cut_off}"


TransactionTestCase._fixture_teardown = _truncate_filled_tables  # type: ignore[method-assign]


@pytest.fixture
def new_cursor(transactional_db: None) -> Iterator[Callable[..., Cursor]]:
    """
    A factory of cursors, each on a connection of its own, in autocommit.

    ``new_cursor()`` is on "default", ``new_cursor("queue")`` on the second database.
    A test opens a transaction with ``with cursor.connection.transaction():``. What is
    written this way is committed; it is removed after the test.
    """
    opened: list[psycopg.Connection[Any]] = []

    def new_cursor(alias: str = "default") -> Cursor:
        # Behind a pooler, what a test looks with has a session of its own.
        direct = f"{alias}_direct"
        connection = connect(
            direct if direct in connections.settings else alias, name="tests"
        )
        opened.append(connection)
        connection.execute(STATEMENT_TIMEOUT)
        return connection.cursor()

    yield new_cursor
    for connection in opened:
        connection.close()


@pytest.fixture
def cursor(new_cursor: Callable[..., Cursor]) -> Cursor:
    """A psycopg cursor on the test database, on a connection of its own."""
    return new_cursor()


@pytest.fixture
def other_cursor(new_cursor: Callable[..., Cursor]) -> Cursor:
    """A second one, as another worker would hold."""
    return new_cursor()


@pytest.fixture
def empty_database(transactional_db: None) -> Iterator[str]:
    """The name of a database without any table."""
    params = connection_params("default")
    name = f"{params['dbname']}_empty"
    with psycopg.connect(**{**params, "dbname": "postgres"}, autocommit=True) as other:
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        other.execute(drop.format(sql.Identifier(name)))
        other.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield name
        other.execute(drop.format(sql.Identifier(name)))


def _drop_unusual_days(cursor: Cursor, parent: str) -> None:
    """
    Drop what other tests have left: a worker makes more days ahead, one that was
    killed may leave a day detached, and just after midnight, what ended an hour ago
    was of the day before.
    """
    today = datetime.now(UTC)
    cursor.execute(
        "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relname ~ %s"
        " AND (NOT relispartition OR relname NOT BETWEEN %s AND %s)",
        [
            f"^{parent}_[0-9]{{8}}$",
            f"{parent}_{today:%Y%m%d}",
            f"{parent}_{today + timedelta(days=7):%Y%m%d}",
        ],
    )
    for (name,) in cursor.fetchall():
        cursor.execute(f"DROP TABLE {name}")


ARCHIVE_DAYS = r"""
SELECT c.relname::text, i.inhdetachpending
  FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
 WHERE c.relkind = 'r' AND c.relname ~ '^pgqueue_archived_job_\d{8}$'
"""


@pytest.fixture
def heard(cursor: Cursor, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """
    A function that returns what was notified since it was last asked.

    Each wake is sent: a busy machine, and what other tests have sent, let none out.
    """
    monkeypatch.setattr(wake, "_pace", wake.Pace())
    monkeypatch.setattr(wake, "JITTER_SECONDS", math.inf)
    wake.listen(cursor, [name := wake.channel(cursor)])
    return lambda: heard_until_now(cursor.connection, name)


@pytest.fixture
def in_thread() -> Iterator[Callable[..., threading.Thread]]:
    """A function that runs another in a thread, which is joined after the test."""
    threads: list[threading.Thread] = []

    def in_thread(function: Callable[..., object], *args: object) -> threading.Thread:
        thread = threading.Thread(target=function, args=args, daemon=True)
        threads.append(thread)
        thread.start()
        return thread

    yield in_thread
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive(), f"{thread} still runs"


@pytest.fixture
def archive_days(cursor: Cursor) -> Iterator[None]:
    """
    The archive has the days after the test that it had before.

    For tests that commit what makes or drops its partitions: no other test's rows
    take them away. Before it, it has a week ahead, as after a migration.
    """
    _drop_unusual_days(cursor, "pgqueue_archived_job")
    with cursor.connection.transaction():
        ARCHIVE.make(cursor)
    before = {name for name, _ in cursor.execute(ARCHIVE_DAYS)}
    yield
    for name, detaching in cursor.execute(ARCHIVE_DAYS).fetchall():
        if detaching:
            cursor.execute(
                f"ALTER TABLE pgqueue_archived_job DETACH PARTITION {name} FINALIZE"
            )
        if name not in before:
            cursor.execute(f"DROP TABLE {name}")
    with cursor.connection.transaction():
        ARCHIVE.make(cursor)


LOG_DAYS = r"""
SELECT c.relname::text, i.inhdetachpending
  FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
 WHERE c.relkind = 'r' AND c.relname ~ '^pgqueue_message_\d{8}$'
"""


@pytest.fixture
def log_days(cursor: Cursor) -> Iterator[Callable[[int], date]]:
    """
    A function that makes the log's day so many days ago, and returns it.

    After the test the log has its usual days, none of them closed.
    """
    cursor.execute("SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date")
    (today,) = cursor.fetchone()  # type: ignore[misc]
    _drop_unusual_days(cursor, "pgqueue_message")

    def make(days_ago: int) -> date:
        day = today - timedelta(days=days_ago)
        cursor.execute("SELECT pgqueue_make_log_day(%s)", [day])
        return day

    yield make
    usual = {f"pgqueue_message_{today + timedelta(days=n):%Y%m%d}" for n in range(8)}
    for name, detaching in cursor.execute(LOG_DAYS).fetchall():
        if detaching:
            cursor.execute(
                f"ALTER TABLE pgqueue_message DETACH PARTITION {name} FINALIZE"
            )
        if name not in usual:
            cursor.execute(f"DROP TABLE {name}")
    for days_ago in range(0, -8, -1):
        make(days_ago)
