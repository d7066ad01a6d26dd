"""
Two-phase: each task writes jobs in a transaction that it prepares; the driver commits.

All are decided in one place, the journal: committing them is several steps, and whoever
comes after a driver that died between two of them goes on by what is written there. A
prepared transaction holds back vacuum in the whole database until it ends, so none may
be forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from django_pgqueue.exceptions import SparkError
from django_pgqueue.spark.write import journal
from django_pgqueue.spark.write.journal import (
    COMMITTED,
    COMMITTING,
    OPEN,
    Outcome,
    Write,
)

Connection = psycopg.Connection[tuple[Any, ...]]

PREFIX = "pgqueue"

# How often, and after which pause, one that somebody else is ending is looked at again.
BUSY_LOOKS = 100
BUSY_PAUSE_SECONDS = 0.05

MAX_PREPARED = "SELECT current_setting('max_prepared_transactions')::integer"

# Locks: as an enqueue, held until the prepared transaction ends.
COPY = "COPY pgqueue_job ({columns}) FROM STDIN"
BEGIN = "BEGIN"
PREPARE = "PREPARE TRANSACTION {gid}"
ROLLBACK = "ROLLBACK"

# Locks: gives back what the prepared transaction holds.
COMMIT_PREPARED = "COMMIT PREPARED {gid}"
ROLLBACK_PREPARED = "ROLLBACK PREPARED {gid}"

# Locks: none that matter.
PREPARED = """
SELECT gid FROM pg_prepared_xacts
 WHERE database = current_database() AND starts_with(gid, %(prefix)s)
"""


def check_server(connection: Connection) -> None:
    """Raise SparkError unless the server can prepare transactions."""
    row = connection.execute(MAX_PREPARED).fetchone()
    if row is None or row[0] == 0:
        raise SparkError(
            "commit=two-phase needs prepared transactions, and the server's setting "
            "max_prepared_transactions is 0: set it to the number of Spark tasks or "
            "more and restart PostgreSQL, or write with commit=staged."
        )


def prefix_of(write_id: UUID) -> str:
    """Return what the ids of all prepared transactions of a write begin with."""
    return f"{PREFIX}:{write_id.hex}:"


class Preparer:
    """Writes the rows of one attempt as jobs, and prepares them."""

    # Before each row: nothing.
    lead = ""

    def __init__(
        self,
        connection: Connection,
        write: Write,
        columns: Sequence[str],
        attempt: int,
    ) -> None:
        self._connection = connection
        self._write = write
        self._statement = sql.SQL(COPY).format(
            columns=sql.SQL(", ").join(map(sql.Identifier, columns))
        )
        self.gid = f"{prefix_of(write.id)}{attempt}"
        self._context: Any = None
        self._copy: Any = None

    def add(self, text: Any) -> None:
        """Take rows in COPY's text format."""
        if self._copy is None:
            self._connection.execute(BEGIN)
            journal.say_at_work(self._connection, self._write)
            self._context = self._connection.cursor().copy(self._statement)
            self._copy = self._context.__enter__()
        self._copy.write(text)

    def prepare(self) -> bool:
        """
        Prepare what was taken; return whether there is anything.

        Raises:
            SparkError: The server has no place for it, or the write has ended
                meanwhile; then nothing is left.
        """
        if self._copy is None:
            return False
        self._context.__exit__(None, None, None)
        gid = sql.Literal(self.gid)
        try:
            self._connection.execute(sql.SQL(PREPARE).format(gid=gid))
        except psycopg.errors.OutOfMemory:
            raise SparkError(
                "The server has no place for another prepared transaction: raise "
                "max_prepared_transactions to the number of Spark tasks or more, or "
                "write with fewer partitions."
            ) from None
        # Who decided before this look has not seen the transaction. Who decides after
        # it will.
        state = journal.state_of(self._connection, self._write.id)
        if state != OPEN:
            end(self._connection, ROLLBACK_PREPARED, self.gid)
            raise SparkError(f"{self._write} is {state}: this task comes too late.")
        journal.touch(self._connection, self._write)
        return True


def decide(connection: Connection, write: Write, outcome: Outcome) -> None:
    """
    Write down that the prepared transactions of *outcome* are to be committed.

    Raises:
        SparkError: One is not there, or the write has been rolled back.
    """
    with connection.transaction():
        if journal.lock(connection, write) in (COMMITTING, COMMITTED):
            return  # Decided by a first try, whose connection broke.
        missing = set(outcome.gids) - set(prepared(connection, write.id))
        if missing:
            raise SparkError(
                f"{write} prepared {min(missing)}, which is not there any more: it was "
                f"rolled back by hand. Nothing was written."
            )
        journal.decide(connection, write, COMMITTING, outcome, skipped=0)


def prepared(connection: Connection, write_id: UUID) -> list[str]:
    """Return the ids of the prepared transactions of a write."""
    rows = connection.execute(PREPARED, {"prefix": prefix_of(write_id)})
    return [gid for (gid,) in rows]


def finish(connection: Connection, write_id: UUID, gids: Iterable[str]) -> None:
    """Commit the prepared transactions *gids* of a decided write; roll back others."""
    chosen = set(gids)
    for gid in sorted(chosen & set(prepared(connection, write_id))):
        end(connection, COMMIT_PREPARED, gid)
    connection.execute(journal.DONE, {"id": write_id})
    sweep(connection, write_id, chosen)


def sweep(connection: Connection, write_id: UUID, chosen: Iterable[str] = ()) -> None:
    """Roll back the prepared transactions of a decided write that do not count."""
    for gid in set(prepared(connection, write_id)) - set(chosen):
        end(connection, ROLLBACK_PREPARED, gid)


def end(connection: Connection, statement: str, gid: str) -> None:
    """
    Commit or roll back one prepared transaction.

    One that somebody else has ended, or is just ending, is as good as ended by us: all
    go by the same journal.
    """
    query = sql.SQL(statement).format(gid=sql.Literal(gid))
    for look in range(BUSY_LOOKS):
        try:
            connection.execute(query)
        except psycopg.errors.UndefinedObject:
            return
        except psycopg.errors.ObjectNotInPrerequisiteState:
            if look == BUSY_LOOKS - 1:
                raise
            time.sleep(BUSY_PAUSE_SECONDS)
        else:
            return
