"""Connect: a connection of our own from Django's DATABASES."""

from __future__ import annotations

import psycopg
import pytest
from django.db import connections
from psycopg.pq import TransactionStatus

from django_pgqueue.postgres import connect as module
from django_pgqueue.postgres.connect import (
    DEFAULTS,
    PREPARE_AFTER,
    Link,
    connect,
    connection_params,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def options(monkeypatch):
    """OPTIONS of the database "default", for this test alone."""
    options = dict(connections["default"].settings_dict["OPTIONS"])
    monkeypatch.setitem(connections["default"].settings_dict, "OPTIONS", options)
    return options


@pytest.fixture
def nobody_listens(monkeypatch):
    """Port 1 of the database's host, for this test alone."""
    monkeypatch.setitem(connections["default"].settings_dict, "PORT", "1")


@pytest.fixture
def link():
    link = Link("default", name="tests: link")
    yield link
    link.drop()


def show(connection, name):
    return connection.execute(f"SHOW {name}").fetchone()[0]


def kill(cursor, connection):
    """End the server's side of *connection*, as a restart or an operator does."""
    pid = connection.info.backend_pid
    cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])


# connect() ---------------------------------------------------------------------------


def test_it_is_the_database_that_django_uses():
    """In a test run, the test database."""
    with connect("default", name="tests") as connection:
        assert connections["default"].settings_dict["NAME"] == connection.info.dbname


def test_operators_see_whose_connection_it_is():
    """The name stands in pg_stat_activity; a long one is cut, and no error."""
    with connect("default", name="pgqueue claimer " + "x" * 100) as connection:
        name = show(connection, "application_name")

    assert "pgqueue claimer " + "x" * 47 == name


@pytest.mark.parametrize("level", [r"repeatable\ read", "serializable"])
def test_it_is_read_committed_whatever_the_role_says(options, level):
    """A claim under REPEATABLE READ fails with 40001 instead of skipping."""
    options["options"] = f"-c default_transaction_isolation={level}"

    with connect("default", name="tests") as connection:
        assert "read committed" == show(connection, "default_transaction_isolation")
        assert "read committed" == show(connection, "transaction_isolation")


def test_a_server_that_cannot_be_written_to_is_refused(options):
    """As after a failover, when the old primary is a standby."""
    options["options"] = "-c default_transaction_read_only=on"

    with pytest.raises(psycopg.OperationalError, match="read-only"):
        connect("default", name="tests")


@pytest.mark.usefixtures("nobody_listens")
def test_a_server_that_cannot_be_reached_is_an_error():
    """Of the class that all loops know how to survive."""

    with pytest.raises(psycopg.OperationalError):
        connect("default", name="tests")


def test_the_role_of_django_is_assumed(options, cursor):
    """OPTIONS["assume_role"] holds for the worker's connections too."""
    options["assume_role"] = "pg_monitor"

    with connect("default", name="tests") as connection:
        assert ("pg_monitor",) == connection.execute("SELECT current_user").fetchone()


# connection_params() -----------------------------------------------------------------


def test_a_dead_peer_is_noticed_in_half_a_minute():
    """Keepalives and time-outs are set unless OPTIONS says otherwise."""
    params = connection_params("default")

    assert DEFAULTS == {name: params[name] for name in DEFAULTS}
    assert 10 + 5 * 3 <= 30


def test_what_options_say_wins(options):
    """The project knows its network better."""
    options["connect_timeout"] = 3
    options["target_session_attrs"] = "any"

    params = connection_params("default")

    assert (3, "any") == (params["connect_timeout"], params["target_session_attrs"])
    assert 30_000 == params["tcp_user_timeout"]


@pytest.mark.parametrize(
    "options_of_django",
    [
        {"server_side_binding": True},
        {"isolation_level": psycopg.IsolationLevel.SERIALIZABLE},
        {"pool": {"min_size": 1, "max_size": 2}},
        {"prepare_threshold": 5},
        {"sslmode": "prefer"},
    ],
    ids=str,
)
def test_every_option_that_django_takes_is_survived(options, options_of_django):
    """Those that are Django's own are left out, those of libpq are passed on."""
    options.update(options_of_django)

    with connect("default", name="tests") as connection:
        assert (1,) == connection.execute("SELECT 1").fetchone()
        assert "read committed" == show(connection, "transaction_isolation")


def test_nothing_is_prepared_unless_options_say_so(options):
    """Prepared statements break behind older poolers."""
    with connect("default", name="tests") as connection:
        assert connection.prepare_threshold is None
    options["prepare_threshold"] = 5
    with connect("default", name="tests") as connection:
        assert 5 == connection.prepare_threshold


# Link --------------------------------------------------------------------------------


def test_a_link_is_reopened_after_it_broke(link, cursor):
    """The statement that finds out fails; the next one runs."""
    first = link.connection.info.backend_pid
    kill(cursor, link.connection)
    with pytest.raises(psycopg.OperationalError):
        link.cursor().execute("SELECT 1")
    assert link.is_open is False

    assert (1,) == link.cursor().execute("SELECT 1").fetchone()
    assert first != link.connection.info.backend_pid


# Steady links ------------------------------------------------------------------------


STEADY = ["off", "off", "off", "force_generic_plan", PREPARE_AFTER]
AS_EVER = ["on", "on", "on", "auto", None]


def planner_settings(link):
    """Return what the planner is told, and how often a statement is run unprepared."""
    names = ("enable_seqscan", "enable_nestloop", "jit", "plan_cache_mode")
    told = [show(link.connection, name) for name in names]
    return [*told, link.connection.prepare_threshold]


@pytest.fixture
def steady():
    """A link for the statements that run all day."""
    link = Link("default", name="tests: steady", steady=True)
    yield link
    link.drop()


def test_a_steady_link_prepares_and_plans_by_index(steady):
    """In a session that is ours alone."""
    assert STEADY == planner_settings(steady)


def test_a_steady_link_is_steady_again_after_it_broke(steady):
    """A new session starts with the server's settings."""
    first = steady.connection.info.backend_pid
    steady.drop()

    assert STEADY == planner_settings(steady)
    assert first != steady.connection.info.backend_pid


def test_nothing_is_prepared_behind_a_pooler(steady, monkeypatch):
    """A pooler's process id is not the server's; one statement at a time is planned."""
    monkeypatch.setattr(module, "BACKEND_PID", "SELECT pg_backend_pid() + 1")

    assert AS_EVER == planner_settings(steady)
    with steady.steady_cursor() as cursor:
        assert "off" == show(cursor.connection, "enable_seqscan")
        assert "off" == show(cursor.connection, "enable_nestloop")
        assert "off" == show(cursor.connection, "jit")
    assert AS_EVER == planner_settings(steady)


# Late flushes ------------------------------------------------------------------------


WRITE = "SELECT pg_logical_emit_message(true, 'tests', 'x')"
IS_ON_DISK = "SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn"


@pytest.fixture
def late():
    """A steady link whose commits do not wait for the disk."""
    link = Link("default", name="tests: late", steady=True, flushes_later=True)
    yield link
    link.drop()


def test_a_late_flush_puts_all_commits_on_disk(late, link):
    """Those of the session itself do not wait for that."""
    assert "off" == show(late.connection, "synchronous_commit")
    assert late.has_late_flush
    late.cursor().execute(WRITE)
    (end,) = link.cursor().execute("SELECT pg_current_wal_insert_lsn()").fetchone()

    late.flush()

    assert (True,) == link.cursor().execute(IS_ON_DISK, [end]).fetchone()
    assert "off" == show(late.connection, "synchronous_commit")
    assert TransactionStatus.IDLE == late.connection.info.transaction_status


def test_a_commit_behind_a_pooler_waits_for_the_disk(late, monkeypatch):
    """The session is lent to others, whose commits must."""
    monkeypatch.setattr(module, "BACKEND_PID", "SELECT pg_backend_pid() + 1")

    assert "on" == show(late.connection, "synchronous_commit")
    assert not late.has_late_flush
    late.flush()


def test_any_other_commit_waits_for_the_disk(steady, link):
    """Acks do, of steady links and others."""
    for each in (steady, link):
        assert "on" == show(each.connection, "synchronous_commit")
        assert not each.has_late_flush
