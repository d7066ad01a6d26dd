"""
Yardstick of pull queues: the tables and statements of PGMQ, as its documents tell them.

A queue is a table with an index on vt beside its key, and an archive. What is sent is
inserted; what is read gets a later vt, by the order of ids; what is done moves to the
archive. There are no errors, no priorities, no order of keys, no dead letters and no
fence: whoever knows an id may archive the message.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django_pgqueue.management.bench.yardstick import Connection

TABLE = "pgqueue_yardstick_pull"
ARCHIVE = "pgqueue_yardstick_pulled"
TABLES = (TABLE, ARCHIVE)

COLUMNS = "msg_id, read_ct, enqueued_at, vt, message, headers"

# Locks: ACCESS EXCLUSIVE on the new tables.
CREATE = f"""
CREATE TABLE {TABLE} (
    msg_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    read_ct integer NOT NULL DEFAULT 0,
    enqueued_at timestamptz NOT NULL DEFAULT now(),
    vt timestamptz NOT NULL,
    message jsonb,
    headers jsonb);
CREATE INDEX ON {TABLE} (vt);
CREATE TABLE {ARCHIVE} (
    msg_id bigint PRIMARY KEY,
    read_ct integer NOT NULL DEFAULT 0,
    enqueued_at timestamptz NOT NULL DEFAULT now(),
    archived_at timestamptz NOT NULL DEFAULT now(),
    vt timestamptz NOT NULL,
    message jsonb,
    headers jsonb);
CREATE INDEX ON {ARCHIVE} (archived_at)
"""

# Locks: none that another insert waits for.
SEND = f"""
INSERT INTO {TABLE} (vt, message)
SELECT clock_timestamp(), unnest(%s::jsonb[]) RETURNING msg_id
"""

# Locks: row locks on what it reads, for the statement.
READ = f"""
WITH found AS (
    SELECT msg_id FROM {TABLE} WHERE vt <= clock_timestamp()
     ORDER BY msg_id LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE {TABLE} AS m
   SET vt = clock_timestamp() + interval '60 s', read_ct = m.read_ct + 1
  FROM found WHERE m.msg_id = found.msg_id
RETURNING m.msg_id, m.read_ct, m.enqueued_at, m.vt, m.message, m.headers
"""

# Locks: row locks on the deleted rows, for the statement.
MOVE = f"""
WITH gone AS (DELETE FROM {TABLE} WHERE msg_id = ANY(%s) RETURNING {COLUMNS})
INSERT INTO {ARCHIVE} ({COLUMNS}) SELECT {COLUMNS} FROM gone RETURNING msg_id
"""


def create(connection: Connection) -> None:
    """Make the tables; *connection* is in autocommit, here and below."""
    connection.execute(CREATE)


def send(connection: Connection, batch: Sequence[Any]) -> None:
    """Send a batch, in a commit of its own."""
    texts = [json.dumps(payload) for payload in batch]
    connection.execute(SEND, [texts]).fetchall()


def receive(connection: Connection, size: int) -> list[int]:
    """Read a batch; return what its ack needs."""
    return [row[0] for row in connection.execute(READ, [size]).fetchall()]


def ack(connection: Connection, ids: list[int]) -> None:
    """Archive a batch, in a commit of its own."""
    connection.execute(MOVE, [ids]).fetchall()
