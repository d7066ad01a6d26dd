"""
Yardstick: what plain psycopg reaches on this server, with nothing around it.

A table with a payload and a time, one index, and the statements that one would write
by hand in an afternoon. It has no attempts, no fence, no archive and no second queue:
the distance between it and the product is what those cost. Times in seconds on the
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

# Locks: ACCESS EXCLUSIVE on the new table.
CREATE = f"""
CREATE TABLE {TABLE} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payload jsonb NOT NULL,
    visible_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON {TABLE} (visible_at)
"""

# Locks: at its commit, the cluster-wide lock of NOTIFY, across the fsync.
INSERT_AND_NOTIFY = f"""
WITH new AS (INSERT INTO {TABLE} (payload) VALUES (%s::jsonb) RETURNING id)
SELECT id, pg_notify('{CHANNEL}', '') FROM new
"""

# Locks: none that another insert waits for.
INSERT_MANY = f"""
INSERT INTO {TABLE} (payload)
SELECT item::jsonb FROM unnest(%s::text[]) AS item
"""

# Locks: row locks on the claimed rows, for the statement.
CLAIM = f"""
WITH candidate AS MATERIALIZED (
    SELECT id FROM {TABLE} WHERE visible_at <= statement_timestamp()
     ORDER BY visible_at LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE {TABLE} AS y SET visible_at = statement_timestamp() + interval '60 s'
  FROM candidate WHERE y.id = candidate.id
RETURNING y.id, y.payload
"""

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
            cursor.execute(INSERT_AND_NOTIFY, [json.dumps(payload)])
            cursor.fetchone()
    return time.perf_counter() - started


def bulk(connection: Connection, payloads: Sequence[Any]) -> float:
    """Insert all in one statement; return the seconds."""
    started = time.perf_counter()
    with connection.cursor() as cursor:
        cursor.execute(INSERT_MANY, [[json.dumps(payload) for payload in payloads]])
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
        while rows := cursor.execute(CLAIM, [CLAIM_ROWS]).fetchall():
            for _, payload in rows:
                work(payload)
            cursor.execute(DELETE, [[row_id for row_id, _ in rows]])
            count += len(rows)
    return count, time.perf_counter() - started


def publish(connection: Connection, payload: Any) -> tuple[int, float]:
    """Insert and notify in one transaction; return the id and when it was to commit."""
    with connection.transaction():
        row = connection.execute(INSERT_AND_NOTIFY, [json.dumps(payload)]).fetchone()
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
        rows = self._claiming.execute(CLAIM, [CLAIM_ROWS]).fetchall()
        now = time.monotonic()
        for row_id, _ in rows:
            self.started_at[row_id] = now
        self._claiming.execute(DELETE, [[row_id for row_id, _ in rows]])
