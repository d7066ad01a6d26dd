"""
Staged: rows wait in a table of the write, and one transaction makes them jobs.

The stage is UNLOGGED: it costs no WAL, and a crash of the database empties it. So what
is moved is compared with what the tasks have reported. Its rows have the number of the
attempt that wrote them, and only those of the attempts that Spark counts are moved. A
task stores each batch in a transaction, of a few megabytes at most, so that it holds
back no vacuum while Spark computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from django_pgqueue.exceptions import SparkError, TopicError
from django_pgqueue.extras import extra
from django_pgqueue.log import backfill, replay
from django_pgqueue.log.publish import FULL, HINT
from django_pgqueue.postgres.bulk import BULK_CHARACTERS_MAX, BULK_ROWS_MAX
from django_pgqueue.postgres.cursor import one_row
from django_pgqueue.queues.fair import lane_hints
from django_pgqueue.queues.lanes import HINT as LANES_HINT
from django_pgqueue.queues.pull import HINT as PULL_HINT
from django_pgqueue.spark.store import Store
from django_pgqueue.spark.write import journal
from django_pgqueue.spark.write.journal import COMMITTED, OPEN, Outcome, Write
from django_pgqueue.spark.write.parts import JOB_TYPES, MESSAGE_TYPES
from django_pgqueue.spark.write.session import Connection, brief

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


def lead_of(write: Write, attempt: int) -> str:
    """Return what stands before each row of an attempt."""
    return f"{attempt}\t" if write.stage_columns else f"{attempt}"


def store(connection: Connection, write: Write, text: Any) -> None:
    """Store rows in COPY's text format, each behind lead_of() its attempt."""
    columns = sql.SQL("").join(sql.SQL(f", {name}") for name in write.stage_columns)
    statement = sql.SQL(COPY).format(stage=write.stage, columns=columns)
    with connection.cursor().copy(statement) as copy:
        copy.write(text)
    journal.touch(connection, write)


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


# Move -------------------------------------------------------------------------------
# Jobs are inserted; messages are published by the function that publish() calls; what a
# receiver gets are the jobs that a replay of the log makes.

# The staged messages of the attempts that count.
ROWS = "(SELECT {values} FROM {stage} WHERE attempt = ANY(%(attempts)s))"

# In the order of their ids, where they have any. A chunk is what one call of a bulk
# publish() stores.
PLACED = """
WITH placed AS (
    SELECT m.name, m.key, m.payload, m.headers || %(marks)s::jsonb AS headers,
           coalesce(m.run_after, statement_timestamp() + (m.place - 1)
                        * (interval '1 second' / %(rate)s::float8)) AS due_at,
           m.place, (m.place - 1) / %(rows_max)s AS part,
           sum(pg_column_size(m.payload)) OVER (ORDER BY m.place)
               / %(bytes_max)s AS piece
      FROM (SELECT r.*, row_number() OVER (ORDER BY r.id) AS place FROM {rows} r) m
), items AS (
    SELECT jsonb_agg(jsonb_build_array(name, key, payload, headers {moment})
                     ORDER BY place) AS items
      FROM placed WHERE due_at IS {which}
     GROUP BY part, piece ORDER BY part, piece
)
"""
# Locks: those of pgqueue_begin_publish().
PUBLISH = (
    PLACED
    + """
SELECT coalesce(cardinality(stored.ids), 0), stored.queues, stored.has_groups
  FROM items, pgqueue_store_messages(%(topic)s, items.items) stored
"""
)
# Locks: none.
SCHEDULE = (
    PLACED
    + """
SELECT cardinality(stored.ids)
  FROM items, pgqueue_schedule_messages(items.items, clock_timestamp()) stored(ids)
"""
)

# Locks: none. A message that may have a job already, or that the log has.
LATER = """
SELECT r.id, r.published_at FROM {rows} r
 WHERE r.published_at >= %(made_at)s OR r.id > %(removed_to)s
 ORDER BY r.id LIMIT 1
"""

# Locks: none. A chunk is handed over when the next begins, rather than all at the end.
IN_ORDER = "SELECT set_config('enable_hashagg', 'off', true)"


@dataclass(frozen=True, slots=True)
class Publishing:
    """
    Publishes the messages of a stage.

    Attributes:
        topic: Which they are of.
        constants: What all rows have, by column, as text.
        per_second: How many are due a second; None: all at once.
        is_marked: Whether their headers say which write brought them back.
    """

    topic: str
    constants: Mapping[str, str]
    per_second: int | None = None
    is_marked: bool = False

    def __call__(
        self,
        connection: Connection,
        write: Write,
        outcome: Outcome,
        rows: sql.Composable | None = None,
    ) -> int:
        """
        Publish them; return how many.

        *rows* is another relation, in brackets, that has the columns of messages; None:
        the stage.

        Raises:
            SparkError: A subscription is full, and refuses them.
        """
        rows = rows_of(write, self.constants) if rows is None else rows
        params = {
            **self.constants,
            "attempts": list(outcome.by_attempt),
            "marks": journal.marks(write) if self.is_marked else "{}",
            "rate": self.per_second,
            "rows_max": BULK_ROWS_MAX,
            "bytes_max": BULK_CHARACTERS_MAX,
            "topic": self.topic,
        }

        def run(statement: str, which: str, moment: str) -> list[Any]:
            composed = sql.SQL(statement).format(
                rows=rows, which=sql.SQL(which), moment=sql.SQL(moment)
            )
            return connection.execute(composed, params).fetchall()

        connection.execute(IN_ORDER)
        done = 0
        if not self.per_second:
            for messages, queues, has_groups in run(PUBLISH, "NULL", ""):
                if queues and queues[0] == FULL:
                    _, pattern, queue, _, depth, most = queues
                    raise SparkError(
                        f"{write}: the subscription {pattern} → {queue} is full, with "
                        f"{int(depth):,} jobs of {int(most):,}, and refuses messages. "
                        f"Nothing was written; run it again when it has fewer."
                    )
                done += messages
                outcome.hints.update(queues)
                outcome.queues.update(q for q in queues if not q.startswith("!"))
                if has_groups:
                    outcome.hints.add(f"{HINT}{self.topic}")
        if self.per_second or "run_after" in (*write.stage_columns, *self.constants):
            for (messages,) in run(SCHEDULE, "NOT NULL", ", due_at, NULL"):
                done += messages
                outcome.hints.add(LANES_HINT)
        return done


@dataclass(frozen=True, slots=True)
class Handing:
    """
    Makes jobs of the messages of a stage, for one receiver alone.

    Attributes:
        topic: Which they are of.
        receiver: As replay.Range takes it.
        per_second: How many are due a second; None: all at once.
        history: Up to which id its history comes from the stage, and where it
            begins; None: it is a replay.
    """

    topic: str
    receiver: Mapping[str, Any]
    per_second: int | None = None
    history: tuple[int, str] | None = None

    def __call__(self, connection: Connection, write: Write, outcome: Outcome) -> int:
        """
        Make them; return how many.

        Raises:
            SparkError: Nobody is there to get them any more; or they are a back-fill
                that cannot be.
        """
        if self.history is not None:
            self._begin(connection, write, outcome, *self.history)
        into = replay.GIVEN_TO[self.receiver["kind"]]
        statement = sql.SQL(into.replays_given).format(rows=rows_of(write, {}))
        params = {
            "name": self.receiver["name"],
            "queue": self.receiver["queue"],
            "task": self.receiver["task"],
            "topic": self.topic,
            "headers": journal.marks(write),
            "rate": self.per_second,
            "attempts": list(outcome.by_attempt),
        }
        made = one_row(connection.execute(statement, params))
        jobs, in_lanes, in_turn, is_there = made
        queue = self.receiver["queue"]
        if not is_there:
            raise SparkError(
                f"{write}: {self.receiver['kind']} {self.receiver['name']} of "
                f"{queue} is not there any more, or it is disabled. Nothing was "
                f"written."
            )
        if jobs:
            outcome.queues.add(queue)
            outcome.hints |= lane_hints(queue, in_lanes, in_turn)
            if self.receiver["kind"] == "queue":
                outcome.hints.add(f"{PULL_HINT}{queue}")
        return int(jobs)

    def _begin(
        self,
        connection: Connection,
        write: Write,
        outcome: Outcome,
        removed_to: int,
        start: str,
    ) -> None:
        """Let the log's part of a back-fill begin; raise SparkError."""
        cursor = connection.cursor()
        try:
            made_at = backfill.begin(
                cursor, self.topic, self.receiver, start=start, removed_to=removed_to
            )
        except TopicError as error:
            raise SparkError(f"{write}: {error}") from None
        cursor.execute(
            sql.SQL(LATER).format(rows=rows_of(write, {})),
            {
                "attempts": list(outcome.by_attempt),
                "made_at": made_at,
                "removed_to": removed_to,
            },
        )
        row = cursor.fetchone()
        if row is not None:
            raise SparkError(
                f"{write}: the message {row[0]:,}, which retention has removed from "
                f"the log, was published at {row[1].isoformat()}, and the subscription "
                f"was made before: nobody knows any more whether it has had its job. "
                f"Delete the subscription, deploy it again, and run this at once; or "
                f"replay to it what it lacks."
            )


def rows_of(write: Write, constants: Mapping[str, str]) -> sql.Composable:
    """Return the staged messages of a write, with all columns that a message has."""
    values = []
    for name, kind in MESSAGE_TYPES.items():
        value = f"%({name})s::{kind}" if name in constants else f"NULL::{kind}"
        if name == "headers" and name not in constants:
            value = "'{}'::jsonb"
        if name in write.stage_columns:
            value = name
        values.append(sql.SQL(f"{value} AS {name}"))
    return sql.SQL(ROWS).format(values=sql.SQL(", ").join(values), stage=write.stage)


# Aside ------------------------------------------------------------------------------
# Each attempt of a task writes one file below _pending, where Spark does not look;
# those of the attempts that count are moved when the write is committed.

PENDING = "_pending"


class Aside:
    """The file of one attempt, made when its first row is refused."""

    def __init__(self, path: str, write_id: UUID, partition: int, attempt: int) -> None:
        self._path = path
        self._folder = _pending(write_id)
        self.name = f"part-{partition:05}-{write_id.hex}-{attempt}.parquet"
        self._file: Any = None
        self._writer: Any = None

    def add(self, rows: Any) -> None:
        """Take a pyarrow.RecordBatch of refused rows."""
        if self._writer is None:
            try:
                self._file = Store(self._path).writes(f"{self._folder}/{self.name}")
            except OSError as error:
                raise _cannot(self._path, error) from None
            parquet = extra("pyarrow.parquet")
            self._writer = parquet.ParquetWriter(self._file, rows.schema)
        self._writer.write_batch(rows)

    def close(self) -> list[str]:
        """End the file; return its name, if there is one."""
        if self._writer is None:
            return []
        self._writer.close()
        self._file.close()
        return [self.name]


def settle_files(path: str, write_id: UUID, names: Iterable[str]) -> None:
    """
    Move the files *names* of a write to where they are seen, and delete its others.

    It may be done again after it broke off.
    """
    store, folder = Store(path), _pending(write_id)
    try:
        for name in names:
            # An object store copies and then deletes: what is there is whole.
            if store.exists(f"{folder}/{name}") and not store.exists(name):
                store.move(f"{folder}/{name}", name)
        store.remove_folder(folder)
    except OSError as error:
        raise _cannot(path, error) from None


def _pending(write_id: UUID) -> str:
    """Return the folder, below the path, of files that do not count yet."""
    return f"{PENDING}/{write_id.hex}"


def _cannot(path: str, error: Exception) -> SparkError:
    problem = " ".join(str(error).split())[:200]
    return SparkError(f"refusedPath {path!r} cannot be written: {problem}.")
