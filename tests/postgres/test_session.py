"""Session: what a connection keeps beyond its transaction is noticed."""

from __future__ import annotations

import pytest
from psycopg import sql

from django_pgqueue.postgres.session import changes_session, close_cursors, watch


@pytest.mark.parametrize(
    "statement",
    [
        "(SELECT 1) UNION (SELECT 2)",
        "/* trace=1 */ SELECT 1",
        "WITH a AS (SELECT 1) SELECT 2",
        "INSERT INTO a VALUES (1);",
        "SAVEPOINT s1",
        "SET LOCAL statement_timeout = 5",
        "SET CONSTRAINTS ALL DEFERRED",
        "SELECT pg_advisory_xact_lock(1)",
        "SELECT a FROM template WHERE temperature > 5",
    ],
)
def test_what_leaves_nothing_behind(statement):
    """Everything that the ORM sends, and more."""
    assert not changes_session(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SET ROLE other",
        "/* trace=1 */ SET TIME ZONE 'UTC'",
        "SELECT set_config('a.b', '1', false)",
        "SELECT pg_advisory_lock(1)",
        "CREATE TEMP TABLE a (b int)",
        "SELECT 1 INTO TEMP a",
        "LISTEN a",
        "DECLARE a CURSOR WITH HOLD FOR SELECT 1",
        "DO $$ BEGIN PERFORM 1; END $$",
        "UPDATE a SET b = 1; SET ROLE other",
        "",
    ],
)
def test_what_may_leave_something_behind(statement):
    """And whatever is not known not to."""
    assert changes_session(statement)


@pytest.mark.parametrize(
    "send",
    [
        lambda raw: raw.execute("SET test.x = '1'"),
        lambda raw: raw.cursor().execute(b"SET test.x = '1'"),
        lambda raw: raw.cursor().execute(sql.SQL("SET test.x = '1'")),
        lambda raw: raw.cursor().executemany(
            "SELECT set_config('test.x', %s, false)", [["1"]]
        ),
        lambda raw: list(
            raw.cursor().stream("SELECT set_config('test.x', '1', false)")
        ),
    ],
    ids=["connection", "bytes", "composed", "many", "stream"],
)
def test_it_is_seen_whatever_way_it_is_sent(cursor, send):
    """Through Django, or past it."""
    raw = cursor.connection
    watched = watch(raw)
    assert None is watched.what_is_left(raw)

    send(raw)

    assert watched.what_is_left(raw) is not None


def test_settings_of_psycopg_are_seen(cursor):
    """A connection that begins transactions by itself would commit nothing."""
    raw = cursor.connection
    watched = watch(raw)
    raw.autocommit = False

    assert "psycopg's own settings" == watched.what_is_left(raw)
    raw.autocommit = True
    assert None is watched.what_is_left(raw)


def test_transactions_are_counted(cursor):
    """However they end, and whoever ends them."""
    raw = cursor.connection
    watched = watch(raw)
    raw.autocommit = False
    for end in (raw.commit, raw.rollback, lambda: raw.execute("COMMIT")):
        raw.execute("SELECT 1")
        raw.execute("SELECT 2")
        end()

    assert 3 == watched.begun


def test_cursors_of_the_server_are_closed(cursor):
    """Those that outlive their transaction."""
    raw = cursor.connection
    raw.execute("DECLARE a CURSOR WITH HOLD FOR SELECT 1")

    close_cursors(raw)

    assert (0,) == raw.execute(
        "SELECT count(*) FROM pg_cursors WHERE is_holdable"
    ).fetchone()
