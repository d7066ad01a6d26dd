"""
Yardstick: what plain psycopg reaches on this server, with nothing around it.

The queue that one would write by hand in an afternoon: a table with the columns that a
job cannot do without, one index beside its key, and a statement for each thing to do.
It has no fence, no error history, no archive, no crash recovery and no threads: the
distance between it and the product is what those cost. Times in seconds on the
client's monotonic clock.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

TABLE = "pgqueue_yardstick"
CHANNEL = "pgqueue_yardstick"

CLAIM_ROWS = 100

# How often psycopg runs a statement before it prepares it: psycopg's own default.
PREPARE_AFTER = 5

# How long a consumer waits for a notification before it looks whether to stop.
STOP_CHECK_SECONDS = 0.2

QUEUE, TASK, WORKER = "default", "pgqueue_bench.nothing", "yardstick"

# Locks: ACCESS EXCLUSIVE on the new table.
CREATE = f"""
CREATE TABLE {TABLE} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text NOT NULL,
    task text NOT NULL,
    args jsonb NOT NULL,
    kwargs jsonb NOT NULL,
    priority smallint NOT NULL DEFAULT 0,
    attempt smallint NOT NULL DEFAULT 0,
    enqueued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    visible_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    leased_by text);
CREATE INDEX ON {TABLE} (queue, priority DESC, visible_at)
"""

# Locks: at its commit, the cluster-wide lock of NOTIFY, across the fsync.
INSERT_AND_NOTIFY = f"""
WITH new AS (
    INSERT INTO {TABLE} (queue, task, args, kwargs)
    VALUES (%s, %s, '[]', %s::jsonb) RETURNING id, queue)
SELECT id, pg_notify('{CHANNEL}', queue) FROM new
"""

# Locks: none that another insert waits for.
INSERT_MANY = f"""
INSERT INTO {TABLE} (queue, task, args, kwargs)
SELECT %s, %s, '[]', item::jsonb FROM unnest(%s::text[]) AS item
RETURNING id
"""

# Locks: row locks on the claimed rows, for the statement.
CLAIM = f"""
WITH candidate AS MATERIALIZED (
    SELECT id FROM {TABLE}
     WHERE queue = %s AND visible_at <= statement_timestamp()
     ORDER BY priority DESC, visible_at LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE {TABLE} AS y
   SET visible_at = statement_timestamp() + interval '60 s',
       attempt = y.attempt + 1, leased_by = %s
  FROM candidate WHERE y.id = candidate.id
RETURNING y.id, y.task, y.args, y.kwargs, y.attempt, y.enqueued_at
"""

KWARGS = 3  # Its place in a row of CLAIM.

# Locks: row locks on the deleted rows, for the statement.
DELETE = f"DELETE FROM {TABLE} WHERE id = ANY(%s)"

LISTEN = f"LISTEN {CHANNEL}"

Connection = psycopg.Connection[tuple[Any, ...]]


def create(connection: Connection) -> None:
    """Make the table; *connection* is in autocommit, here and below."""
    connection.execute(CREATE)


def as_plain(connection: Connection) -> Connection:
    """Set *connection* to what psycopg.connect() gives by default."""
    connection.prepare_threshold = PREPARE_AFTER
    return connection


def enqueue(connection: Connection, payloads: Sequence[Any]) -> float:
    """Insert and notify, one statement and one commit each; return the seconds."""
    started = time.perf_counter()
    with connection.cursor() as cursor:
        for payload in payloads:
            cursor.execute(INSERT_AND_NOTIFY, [QUEUE, TASK, json.dumps(payload)])
            cursor.fetchone()
    return time.perf_counter() - started


def bulk(connection: Connection, payloads: Sequence[Any]) -> float:
    """Insert all in one statement; return the seconds."""
    started = time.perf_counter()
    with connection.cursor() as cursor:
        items = [json.dumps(payload) for payload in payloads]
        cursor.execute(INSERT_MANY, [QUEUE, TASK, items]).fetchall()
    return time.perf_counter() - started


def drain(connection: Connection, work: Callable[[Any], None]) -> tuple[int, float]:
    """
    Claim 100, call *work* with each payload, delete them, until none is left.

    Returns:
        How many there were, and the seconds.
    """
    count = 0
    started = time.perf_counter()
    with connection.cursor() as cursor:
        while rows := cursor.execute(CLAIM, [QUEUE, CLAIM_ROWS, WORKER]).fetchall():
            for row in rows:
                work(row[KWARGS])
            cursor.execute(DELETE, [[row[0] for row in rows]])
            count += len(rows)
    return count, time.perf_counter() - started


def publish(connection: Connection, payload: Any) -> tuple[int, float]:
    """Insert and notify in one transaction; return the id and when it was to commit."""
    with connection.transaction():
        values = [QUEUE, TASK, json.dumps(payload)]
        row = connection.execute(INSERT_AND_NOTIFY, values).fetchone()
        commits_at = time.monotonic()
    assert row is not None
    return row[0], commits_at


class Consumer(threading.Thread):
    """
    LISTEN, claim what is there, note when the work starts, delete it.

    Attributes:
        started_at: By id, the monotonic time at which the work on a row began.
    """

    def __init__(self, listening: Connection, claiming: Connection) -> None:
        super().__init__(name="pgqueue-yardstick", daemon=True)
        listening.execute(LISTEN)
        self._listening = listening
        self._claiming = claiming
        self._stopping = threading.Event()
        self.started_at: dict[int, float] = {}

    def run(self) -> None:
        """Look after each notification until stopped."""
        while not self._stopping.is_set():
            for _ in self._listening.notifies(timeout=STOP_CHECK_SECONDS, stop_after=1):
                self._take()

    def stop(self) -> None:
        """End the thread, and wait for that."""
        self._stopping.set()
        self.join()

    def _take(self) -> None:
        values = [QUEUE, CLAIM_ROWS, WORKER]
        rows = self._claiming.execute(CLAIM, values).fetchall()
        now = time.monotonic()
        for row in rows:
            self.started_at[row[0]] = now
        self._claiming.execute(DELETE, [[row[0] for row in rows]])
