"""
Move: what becomes of the rows of a stage, in the transaction that decides a write.

Jobs are inserted; messages are published by the function that publish() calls; what a
receiver gets are the jobs that a replay of the log makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from django_pgqueue.exceptions import SparkError, TopicError
from django_pgqueue.log import replay
from django_pgqueue.log.backfill import begin
from django_pgqueue.log.publish import FULL, HINT
from django_pgqueue.postgres.bulk import BULK_CHARACTERS_MAX, BULK_ROWS_MAX
from django_pgqueue.postgres.cursor import one_row
from django_pgqueue.queues.fair import HINT as FAIR_HINT
from django_pgqueue.queues.lanes import HINT as LANES_HINT
from django_pgqueue.queues.pull import HINT as PULL_HINT
from django_pgqueue.spark.write import journal
from django_pgqueue.spark.write.journal import Outcome, Write
from django_pgqueue.spark.write.parts import MESSAGE_TYPES
from django_pgqueue.spark.write.session import Connection

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

    def __call__(self, connection: Connection, write: Write, outcome: Outcome) -> int:
        """
        Publish them; return how many.

        Raises:
            SparkError: A subscription is full, and refuses them.
        """
        staged = {**self.constants, "attempts": list(outcome.by_attempt)}
        rows = rows_of(write, self.constants)
        return self.store(connection, write, outcome, rows, staged)

    def store(
        self,
        connection: Connection,
        write: Write,
        outcome: Outcome,
        rows: sql.Composable,
        staged: Mapping[str, Any],
    ) -> int:
        """
        Publish messages of any relation that has their columns; return how many.

        *rows* is the relation, in brackets, and takes *staged* as parameters.

        Raises:
            SparkError: A subscription is full, and refuses them.
        """
        params = {
            **staged,
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
        backfill: Up to which id its history comes from the stage, and where it
            begins; None: it is a replay.
    """

    topic: str
    receiver: Mapping[str, Any]
    per_second: int | None = None
    backfill: tuple[int, str] | None = None

    def __call__(self, connection: Connection, write: Write, outcome: Outcome) -> int:
        """
        Make them; return how many.

        Raises:
            SparkError: Nobody is there to get them any more; or they are a back-fill
                that cannot be.
        """
        if self.backfill is not None:
            self._begin(connection, write, outcome, *self.backfill)
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
            outcome.hints |= hints_of(queue, in_lanes, in_turn)
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
            made_at = begin(
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


def hints_of(queue: str, in_lanes: int, in_turn: int) -> set[str]:
    """Return what is notified besides a queue that has got jobs, some in lanes."""
    if in_turn:
        return {f"{FAIR_HINT}{queue}"}
    return {LANES_HINT} if in_lanes else set()


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
