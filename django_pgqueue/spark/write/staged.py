"""
Staged: rows wait in a table of the write, and one transaction makes them jobs.

The stage is UNLOGGED: it costs no WAL, and a crash of the database empties it. So what
is moved is compared with what the tasks have reported. Its rows have the number of the
attempt that wrote them, and only those of the attempts that Spark counts are moved. A
task stores a few megabytes in each transaction, so that it holds back no vacuum while
Spark computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from django_pgqueue.exceptions import SparkError
from django_pgqueue.spark.write import journal
from django_pgqueue.spark.write.journal import COMMITTED, OPEN, Outcome, Write
from django_pgqueue.spark.write.parts import JOB_TYPES, MESSAGE_TYPES
from django_pgqueue.spark.write.session import Connection, brief

# Text that goes into one COPY.
COPY_BYTES = 4_194_304

# What waits for a task that Spark is about to kill waits no longer than this.
DROP_TIMEOUT = "SET LOCAL lock_timeout = '2s'"

# Locks: the new table's. No autovacuum: it is gone before that would pay.
CREATE = """
CREATE UNLOGGED TABLE {stage} (attempt bigint NOT NULL{columns})
  WITH (autovacuum_enabled = off)
"""
COPY = "COPY {stage} (attempt{columns}) FROM STDIN"

# Locks: none but a reader's.
COUNT = "SELECT attempt, count(*) FROM {stage} GROUP BY attempt"

# Locks: as an enqueue. Sorted by dedup key, where there is one, so that two writes
# cannot deadlock; a key that is taken leaves its row out.
MOVE = """
INSERT INTO pgqueue_job ({names})
SELECT {values} FROM {stage} WHERE attempt = ANY(%(attempts)s) {in_order}
"""
# Of a job that is brought back: what its first life has left there is not its own.
MARKED = """
(SELECT coalesce(jsonb_object_agg(h.key, h.value), '{{}}') FROM jsonb_each({headers}) h
  WHERE NOT starts_with(h.key, 'pgqueue.')) || %(marks)s::jsonb
"""
DUE_AT = """
statement_timestamp() + (row_number() OVER ({order}) - 1)
    * (interval '1 second' / %(rate)s::float8)
"""
BY_KEY = """
ORDER BY dedup_key ON CONFLICT (dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
"""

DROP = "DROP TABLE IF EXISTS {stage}"


def begin(connection: Connection, write: Write) -> None:
    """
    Make the journal's row and the stage, unless another task has made them.

    Raises:
        SparkError: The write has ended; or the role may make no table.
    """
    try:
        with brief(connection):
            if journal.begin(connection, write):
                columns = sql.SQL("").join(
                    sql.SQL(f", {name} {(JOB_TYPES | MESSAGE_TYPES)[name]}")
                    for name in write.stage_columns
                )
                connection.execute(
                    sql.SQL(CREATE).format(stage=write.stage, columns=columns)
                )
    except psycopg.errors.InsufficientPrivilege:
        raise SparkError(
            f"The role may make no table in the schema {write.stage_schema}: GRANT "
            f"CREATE ON SCHEMA to it, or name a schema where it may by the option "
            f"stageSchema."
        ) from None
    except psycopg.errors.InvalidSchemaName:
        raise SparkError(
            f"There is no schema {write.stage_schema}: make it, or name another one "
            f"by the option stageSchema."
        ) from None


def begin_again(connection: Connection, write: Write) -> None:
    """As begin(), where no task had a row; a write that is decided is left alone."""
    if journal.state_of(connection, write.id) is None:
        begin(connection, write)


class Stager:
    """Writes the rows of one attempt into the stage."""

    def __init__(self, connection: Connection, write: Write, attempt: int) -> None:
        self._connection = connection
        self._write = write
        # Before each row.
        self.lead = f"{attempt}\t" if write.stage_columns else f"{attempt}"
        self._texts: list[Any] = []
        self._bytes = 0

    def add(self, text: Any) -> None:
        """Take rows in COPY's text format."""
        self._texts.append(text)
        self._bytes += len(text)
        if self._bytes >= COPY_BYTES:
            self.flush()

    def flush(self) -> None:
        """Store what was taken."""
        if not self._texts:
            return
        columns = sql.SQL("").join(
            sql.SQL(f", {name}") for name in self._write.stage_columns
        )
        statement = sql.SQL(COPY).format(stage=self._write.stage, columns=columns)
        with self._connection.cursor().copy(statement) as copy:
            for text in self._texts:
                copy.write(text)
        journal.touch(self._connection, self._write)
        self._texts, self._bytes = [], 0


# What makes of the staged rows of the attempts that count what is wanted; how many.
Move = Callable[[Connection, Write, Outcome], int]


def commit(connection: Connection, write: Write, outcome: Outcome, move: Move) -> int:
    """
    Move the staged rows of the attempts that count: all, or none.

    Returns:
        How many rows were left out: their dedup key is taken, or nobody wants them.

    Raises:
        SparkError: Rows are missing, or the write has been rolled back.
    """
    with brief(connection):
        found = journal.lock(connection, write)
        if found.state == COMMITTED:
            # The connection broke while it was being committed, and this is the
            # second try.
            return found.skipped or 0
        if found.state == OPEN:
            _compare(connection, write, outcome)
            # Also without a row: more may depend on it.
            skipped = outcome.rows - move(connection, write, outcome)
        else:
            skipped = 0
        journal.decide(connection, write, outcome, skipped=skipped)
    return skipped


def _compare(connection: Connection, write: Write, outcome: Outcome) -> None:
    statement = sql.SQL(COUNT).format(stage=write.stage)
    found: dict[int, int] = dict(connection.execute(statement).fetchall())
    for attempt, rows in outcome.by_attempt.items():
        if found.get(attempt, 0) != rows:
            raise SparkError(
                f"{write} staged {rows:,} rows in attempt {attempt}, and "
                f"{found.get(attempt, 0):,} are there: a crash of PostgreSQL empties "
                f"unlogged tables. Nothing was written; run it again."
            )


@dataclass(frozen=True, slots=True)
class Jobs:
    """
    Makes jobs of the rows of a stage.

    Attributes:
        constants: What all rows have, by column, as text.
        per_second: How many are due a second; None: as each row says.
        is_marked: Whether their headers say which write brought them back.
    """

    constants: Mapping[str, str]
    per_second: int | None = None
    is_marked: bool = False

    def __call__(self, connection: Connection, write: Write, outcome: Outcome) -> int:
        """Make them; return how many."""
        made = {name: sql.SQL(name) for name in write.stage_columns} | {
            name: sql.SQL(f"%({name})s::{JOB_TYPES[name]}") for name in self.constants
        }
        params: dict[str, Any] = dict(self.constants)
        if self.per_second:
            made["run_after"] = sql.SQL(DUE_AT.format(order=""))
            params["rate"] = self.per_second
        if self.is_marked:
            made["headers"] = sql.SQL(
                MARKED.format(headers="headers" if "headers" in made else "'{}'::jsonb")
            )
            params["marks"] = journal.marks(write)
        statement = sql.SQL(MOVE).format(
            names=sql.SQL(", ").join(map(sql.Identifier, made)),
            values=sql.SQL(", ").join(made.values()),
            stage=write.stage,
            in_order=sql.SQL(BY_KEY if "dedup_key" in write.stage_columns else ""),
        )
        params["attempts"] = list(outcome.by_attempt)
        return connection.execute(statement, params).rowcount


def drop(connection: Connection, schema: str, table: str) -> None:
    """Drop a stage; raise psycopg.Error when a task still writes to it."""
    with connection.transaction():
        connection.execute(DROP_TIMEOUT)
        stage = sql.Identifier(schema, table)
        connection.execute(sql.SQL(DROP).format(stage=stage))
