"""
Pull: messages of a queue that its clients receive, and no worker claims.

The verbs are functions of the database (sql/send.sql, receive.sql, ack.sql, …), which
any client may call; these are what Python calls them by. A message is a job of one
reserved task, so it is found, listed, counted, archived and redriven as any job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django_pgqueue.bounds import PULL_TASK
from django_pgqueue.postgres.cursor import Cursor, column, value
from django_pgqueue.queues.bands import BANDS_OF_QUEUES

# What is notified of a pull queue, before its name: no worker looks for it then.
HINT = "!pull:"

# Of a message and one of its deliveries; as sql/pull_receipts.sql has it.
RECEIPT = re.compile(r"\d{1,18}:\d{1,9}", re.ASCII)

# Per call of the functions.
MESSAGES_MAX = 10_000
RECEIVE_MAX = 1_000
RECEIPTS_MAX = 1_000

# Their ranges, in seconds.
VISIBILITY_SECONDS_MIN, VISIBILITY_SECONDS_MAX = 1, 43_200
DELAY_SECONDS_MAX = 31_622_400

GROUP_CHARACTERS_MAX = 128

# Locks: those of the function.
DECLARE = """
SELECT pgqueue_declare_queue(%(queue)s, %(visibility)s::float8,
                             %(max_receives)s::integer, %(changes)s)
"""

# Locks: none.
HAS_PULL_QUEUES = "SELECT to_regproc('pgqueue_declare_queue') IS NOT NULL"

# Locks: those of the functions. A queue that nobody has declared to the database is
# made first: the target list is reckoned after FROM. Whoever stored it tells receivers
# after the commit.
DECLARED = """
pgqueue_declare_queue(%(queue)s, %(visibility)s::float8, %(max_receives)s::integer,
                      false)
"""
SEND = f"""
SELECT pgqueue_send(%(queue)s, %(payload)s::jsonb, %(delay)s::float8, %(lane)s,
                    %(dedup_key)s, %(headers)s::jsonb, %(priority)s,
                    %(expires)s::float8, %(max_receives)s::integer, false)
  FROM {DECLARED}
"""
SEND_MANY = f"""
SELECT pgqueue_send_many(%(queue)s, %(payloads)s::jsonb, %(delay)s::float8,
                         %(lanes)s::jsonb, %(headers)s::jsonb, %(priority)s,
                         %(expires)s::float8, %(max_receives)s::integer, false)
  FROM {DECLARED}
"""

# Locks: those of the function. ::text: a payload that Python cannot read must fail
# where it is read, not here.
RECEIVE = """
SELECT receipt, id, deliveries, payload::text, headers::text, lane, sent_at, received_at
  FROM pgqueue_receive(%(queue)s, %(limit)s, %(visibility)s::float8, %(receiver)s)
"""

# Locks: those of the functions.
EXTEND = "SELECT pgqueue_extend(%(receipts)s, %(visibility)s::float8)"
ACK = "SELECT pgqueue_ack(%(receipts)s)"
NACK = "SELECT pgqueue_nack(%(receipts)s, %(delay)s::float8, %(error)s, false)"
REJECT = "SELECT pgqueue_reject(%(receipts)s, %(reason)s)"

# Locks: none.
DUE_IN = "SELECT pgqueue_due_in(%(queue)s)"

# Locks: none. Some of those that nobody has received, by priority.
WAITING = f"""
WITH RECURSIVE {BANDS_OF_QUEUES}
SELECT waiting.id FROM band
 CROSS JOIN LATERAL (
       SELECT j.id FROM pgqueue_job j
        WHERE j.queue = band.queue AND j.priority = band.priority
          AND j.leased_by IS NULL AND j.task = '{PULL_TASK}'
        ORDER BY j.visible_at LIMIT %(limit)s) waiting
 LIMIT %(limit)s
"""

# Locks: none. Along pgqueue_dead_letter_queue.
LETTERS = f"""
SELECT d.id FROM pgqueue_dead_letter d
 WHERE d.queue = %(queue)s AND d.task = '{PULL_TASK}' AND d.id > %(after)s
 ORDER BY d.queue, d.task, d.id LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredQueue:
    """
    What is said of a pull queue; None: what the database has, at first 30 s and 5.

    Attributes:
        name: Of the queue.
        visibility_seconds: For how long a message is its receiver's.
        max_receives: How often it is received at most.
    """

    name: str
    visibility_seconds: float | None = None
    max_receives: int | None = None

    def params(self) -> dict[str, Any]:
        """Return the values by the names that the statements use."""
        return {
            "queue": self.name,
            "visibility": self.visibility_seconds,
            "max_receives": self.max_receives,
        }


class Row(NamedTuple):
    """A message as it was received."""

    receipt: str
    id: int
    deliveries: int
    payload: str  # JSON text.
    headers: str  # JSON text.
    lane: str | None
    sent_at: datetime
    received_at: datetime


class Answer(NamedTuple):
    """
    What became of messages that were to be acked, given back, rejected or extended.

    Attributes:
        done: For how many that was written.
        stale: Receipts of messages that have ended, or are another receiver's by now:
            nothing was written for these.
        dead: How many of those that were given back became dead letters, since they
            were received often enough.
    """

    done: int
    stale: list[str]
    dead: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """What is said of messages: times in seconds, headers as JSON text."""

    delay: float | None = None
    expires: float | None = None
    headers: str = "{}"
    priority: int = 0

    def params(self) -> dict[str, Any]:
        """Return the values by the names that the statements use."""
        return {name: getattr(self, name) for name in self.__slots__}


def declare(cursor: Cursor, queue: DeclaredQueue, *, changes: bool) -> None:
    """
    Make *queue*; where *changes*, or let an existing one be as it says.

    Raises:
        psycopg.errors.ObjectNotInPrerequisiteState: It has jobs of tasks.
    """
    cursor.execute(DECLARE, {**queue.params(), "changes": changes})


def has_pull_queues(cursor: Cursor) -> bool:
    """Whether the database is migrated as far."""
    return bool(value(cursor, HAS_PULL_QUEUES))


def send(
    cursor: Cursor,
    queue: DeclaredQueue,
    sending: Sending,
    *,
    payload: str,
    lane: str | None,
    dedup_key: str | None,
) -> int:
    """Store one message and return its id: one round trip. The caller commits."""
    of_it = {"payload": payload, "lane": lane, "dedup_key": dedup_key}
    return int(value(cursor, SEND, **queue.params(), **sending.params(), **of_it))


def send_many(
    cursor: Cursor,
    queue: DeclaredQueue,
    sending: Sending,
    *,
    payloads: str,
    lanes: Sequence[str | None] | None,
) -> list[int]:
    """
    Store messages and return their ids, in order. The caller commits.

    Args:
        cursor: Django's or psycopg's.
        queue: What code says of it.
        sending: What holds for all of them.
        payloads: A JSON array as text, of up to MESSAGES_MAX.
        lanes: Of each; None: none has one.
    """
    of_them = {
        "payloads": payloads,
        "lanes": None if lanes is None else json.dumps(lanes),
    }
    cursor.execute(SEND_MANY, {**queue.params(), **sending.params(), **of_them})
    return [message_id for (message_id,) in cursor.fetchall()]


def receive(
    cursor: Cursor,
    queue: str,
    *,
    limit: int,
    visibility_seconds: float | None,
    receiver: str | None,
) -> list[Row]:
    """Lease up to *limit* messages, 1 to RECEIVE_MAX; the caller commits."""
    cursor.execute(
        RECEIVE,
        {
            "queue": queue,
            "limit": limit,
            "visibility": visibility_seconds,
            "receiver": receiver,
        },
    )
    return [Row._make(row) for row in cursor.fetchall()]


def due_in(cursor: Cursor, queue: str) -> float | None:
    """
    Return in how many seconds the next message is due that is not yet; None: none is.

    One that waits in its lane is not looked for.
    """
    seconds: float | None = value(cursor, DUE_IN, queue=queue)
    return seconds


def waiting(cursor: Cursor, queue: str, *, limit: int) -> list[int]:
    """Return the ids of up to *limit* messages that nobody has received."""
    return column(cursor, WAITING, queues=[queue], limit=limit)


def letters(cursor: Cursor, queue: str, *, after: int, limit: int) -> list[int]:
    """Return the ids of dead letters of *queue* above *after*, the smallest first."""
    return column(cursor, LETTERS, queue=queue, after=after, limit=limit)


def settle(
    cursor: Cursor, statement: str, receipts: Sequence[str], **params: Any
) -> Answer:
    """
    Run ACK, NACK, REJECT or EXTEND for *receipts*, RECEIPTS_MAX at a time.

    Raises:
        psycopg.errors.InvalidParameterValue: One is no receipt.
    """
    done, dead, stale = 0, 0, list[str]()
    for start in range(0, len(receipts), RECEIPTS_MAX):
        some = " ".join(receipts[start : start + RECEIPTS_MAX])
        answer = value(cursor, statement, **params, receipts=some)
        # Django's cursors leave JSON as text.
        told = json.loads(answer) if isinstance(answer, str) else answer
        done += told["done"]
        dead += told.get("dead", 0)
        stale += told["stale"]
    return Answer(done, stale, dead)
