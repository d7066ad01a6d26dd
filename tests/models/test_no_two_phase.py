"""Migration 0033: what two-phase writing left goes, once its writes have ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from uuid import uuid4

import psycopg
import pytest

migration = import_module("django_pgqueue.migrations.0033_no_two_phase")

WRITE = "INSERT INTO pgqueue_spark_write (id, mode, state) VALUES (%s, %s, %s)"
UNFINISHED = "commit=two-phase has not ended"


@contextmanager
def as_before(cursor: Any) -> Iterator[None]:
    """Let the journal be as it was, until the end."""
    with cursor.connection.transaction(force_rollback=True):
        cursor.execute(migration.BACK)
        yield


@pytest.mark.parametrize(
    "mode, state", [("two-phase", "open"), ("two-phase", "committing")]
)
def test_a_write_under_way_keeps_the_migration_off(cursor, mode, state):
    """The error says what ends it."""
    with as_before(cursor):
        cursor.execute(WRITE, [uuid4(), mode, state])

        with pytest.raises(psycopg.errors.RaiseException, match=UNFINISHED) as refused:
            cursor.execute(migration.CHECK)

    assert "spark.write.reap --stale 0" in refused.value.diag.message_hint


def test_a_prepared_transaction_keeps_the_migration_off(cursor, new_cursor):
    """Also of a write that was rolled back: nobody would end it any more."""
    (room,) = cursor.execute("SHOW max_prepared_transactions").fetchone()
    if room == "0":
        pytest.skip("max_prepared_transactions is 0")
    write, other = uuid4(), new_cursor()
    name = f"'pgqueue:{write.hex}:7'"
    with as_before(cursor):
        cursor.execute(WRITE, [write, "two-phase", "rolled_back"])
        other.execute("BEGIN")
        other.execute(f"PREPARE TRANSACTION {name}")
        try:
            with pytest.raises(psycopg.errors.RaiseException, match=UNFINISHED):
                cursor.execute(migration.CHECK)
        finally:
            other.execute(f"ROLLBACK PREPARED {name}")


def test_writes_that_have_ended_stay(cursor):
    """Their names stay taken, and their numbers are told."""
    with as_before(cursor):
        ended = [("two-phase", "committed"), ("staged", "open")]
        for mode, state in ended:
            cursor.execute(WRITE, [uuid4(), mode, state])

        cursor.execute(migration.CHECK)
        cursor.execute(migration.DROP)

        cursor.execute("SELECT state FROM pgqueue_spark_write ORDER BY state")
        assert [("committed",), ("open",)] == cursor.fetchall()
