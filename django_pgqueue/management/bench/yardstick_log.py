"""
Yardstick of a log: the topic that one would write by hand in an afternoon.

A table with the columns of a message, an index to read it by, and a row for each
position. It has no partitions by day, no horizon, so it skips what commits late, no
lease and no fence, and one thread reads. Times in seconds on the client's clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from django_pgqueue.management.bench.yardstick import TABLE as JOBS

TABLE = "pgqueue_yardstick_message"
POSITIONS = "pgqueue_yardstick_position"
TABLES = (TABLE, POSITIONS)

TOPIC, NAME = 1, "pgqueue_bench"
KEY = "customer"
PARTITIONS = 16
BATCH = 500

# Locks: ACCESS EXCLUSIVE on the new tables.
CREATE = f"""
CREATE TABLE {TABLE} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic integer NOT NULL,
    partition smallint NOT NULL,
    name text NOT NULL,
    key text,
    payload jsonb NOT NULL,
    headers jsonb NOT NULL DEFAULT '{{}}');
CREATE INDEX ON {TABLE} (topic, partition, id);
CREATE TABLE {POSITIONS} (partition smallint PRIMARY KEY, position bigint NOT NULL)
    WITH (fillfactor = 50)
"""

PARTITION_OF = f"(hashtextextended({{key}}, 0) & 9223372036854775807) %% {PARTITIONS}"

# Locks: none that another insert waits for, here and below.
INSERT = f"""
INSERT INTO {TABLE} (topic, partition, name, key, payload)
SELECT %s, {PARTITION_OF.format(key="key")}, %s, key, %s::jsonb
  FROM (SELECT %s::text) given(key)
RETURNING id
"""

INSERT_MANY = f"""
INSERT INTO {TABLE} (topic, partition, name, key, payload)
SELECT %s, {PARTITION_OF.format(key=f"item ->> '{KEY}'")}, %s, item ->> '{KEY}', item
  FROM jsonb_array_elements(%s::jsonb) AS item
RETURNING id
"""

# Jobs go where those of the other yardstick are.
INSERT_AND_FAN_OUT = f"""
WITH message AS ({INSERT_MANY}), fanned AS (
    INSERT INTO {JOBS} (queue, task, args, kwargs)
    SELECT 'q' || n, %s, jsonb_build_array(message.id), '{{}}'
      FROM message, generate_series(1, %s) n)
SELECT id FROM message
"""

# Locks: row locks on the positions, for the statement.
REWIND = f"""
INSERT INTO {POSITIONS} SELECT n, 0 FROM generate_series(0, {PARTITIONS - 1}) n
    ON CONFLICT (partition) DO UPDATE SET position = 0
"""

# Locks: none.
READ = f"""
SELECT id, name, key, payload, headers, published_at FROM {TABLE}
 WHERE topic = %s AND partition = %s
   AND id > (SELECT position FROM {POSITIONS} WHERE partition = %s)
 ORDER BY id LIMIT %s
"""

# Locks: the row of the position.
MOVE = f"UPDATE {POSITIONS} SET position = %s WHERE partition = %s"

Connection = psycopg.Connection[tuple[Any, ...]]


def create(connection: Connection) -> None:
    """Make the tables; *connection* is in autocommit, here and below."""
    connection.execute(CREATE)


def publish(cursors: Callable[[], Any], payloads: Sequence[Any]) -> float:
    """Insert one by one, a commit and a cursor each; return the seconds."""
    started = time.perf_counter()
    for payload in payloads:
        with cursors() as cursor:
            values = [TOPIC, NAME, json.dumps(payload), payload[KEY]]
            cursor.execute(INSERT, values)
            cursor.fetchone()
    return time.perf_counter() - started


def publish_many(
    connection: Connection, payloads: Sequence[Any], *, subscriptions: int = 0
) -> float:
    """Insert all in one statement, and a row for each subscription."""
    started = time.perf_counter()
    with connection.cursor() as cursor:
        values = [TOPIC, NAME, json.dumps(payloads)]
        if subscriptions:
            statement, more = INSERT_AND_FAN_OUT, [NAME, subscriptions]
        else:
            statement, more = INSERT_MANY, []
        cursor.execute(statement, [*values, *more]).fetchall()
    return time.perf_counter() - started


def read(connection: Connection, handle: Callable[[list[Any]], None]) -> float:
    """Read every partition to its end, batch by batch; return the seconds."""
    connection.execute(REWIND)
    started = time.perf_counter()
    left = list(range(PARTITIONS))
    with connection.cursor() as cursor:
        while left:
            partition = left.pop(0)
            values = [TOPIC, partition, partition, BATCH]
            rows = cursor.execute(READ, values).fetchall()
            if rows:
                handle(rows)
                cursor.execute(MOVE, [rows[-1][0], partition])
                left.append(partition)
    return time.perf_counter() - started
