"""
Read: the messages of one partition after a position, in the order of their ids.

Up to a horizon that was fetched in a statement before this one, so that nothing which
commits later has a lower id.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from django_pgqueue.topics.message import Message

# With a filter: how many messages are looked at for each that may be handed over, and
# how many in one statement.
SCAN_PER_MESSAGE, SCAN_MESSAGES_MAX = 20, 20_000

# JSON comes as text: who reads parses it once.
COLUMNS = "m.id, m.name, m.payload::text, m.key, m.headers::text, m.published_at"

# Locks: none. Each day from %(since)s on gives its messages by its index, in order;
# they are merged, since a message whose id is lower may be of a later day.
READ = f"""
SELECT {COLUMNS}
  FROM pgqueue_message m
 WHERE m.topic_id = %(topic)s AND m.partition = %(partition)s
   AND m.id > %(after)s AND m.id <= %(bound)s
   AND m.published_at >= %(since)s::timestamptz
 ORDER BY m.id LIMIT %(limit)s
"""

# Locks: none. Looks at %(scan)s messages at most: one row at least, which says how many
# and up to where.
READ_WHERE = f"""
WITH edge AS MATERIALIZED (
    SELECT count(*) AS scanned, max(id) AS last
      FROM (SELECT m.id FROM pgqueue_message m
             WHERE m.topic_id = %(topic)s AND m.partition = %(partition)s
               AND m.id > %(after)s AND m.id <= %(bound)s
               AND m.published_at >= %(since)s::timestamptz
             ORDER BY m.id LIMIT %(scan)s) seen)
SELECT edge.scanned, edge.last, found.*
  FROM edge LEFT JOIN LATERAL (
    SELECT {COLUMNS}
      FROM pgqueue_message m
     WHERE m.topic_id = %(topic)s AND m.partition = %(partition)s
       AND m.id > %(after)s AND m.id <= edge.last
       AND m.published_at >= %(since)s::timestamptz
       AND m.payload @> %(where)s::jsonb
     ORDER BY m.id LIMIT %(limit)s) found ON true
 ORDER BY found.id
"""


class Batch(NamedTuple):
    """What was read of a partition."""

    messages: list[Message]
    # Everything up to this id was looked at: the position after the batch.
    to: int
    # Whether there is more up to the same bound.
    has_more: bool
    # Why the payload or the headers of the one message cannot be read; it stands there
    # without them. None: all were read.
    error: Exception | None = None


def read(
    cursor: Any,
    *,
    topic: str,
    topic_id: int,
    partition: int,
    after: int,
    bound: int,
    limit: int,
    since: datetime | str = "-infinity",
    where: str | None = None,
    decode: Callable[[str], Any] = json.loads,
) -> Batch:
    """
    Return the next messages of a partition.

    Those before one that cannot be read; and that one alone, when it comes first.

    Args:
        cursor: psycopg's, in autocommit; on the primary.
        topic: Its name, for the messages.
        topic_id: Its id.
        partition: Which one.
        after: Up to where it was read.
        bound: The topic's horizon, fetched in a statement before this one.
        limit: How many messages at most.
        since: The first day that can hold one (closed_days.Days.since).
        where: JSON text that a payload has to contain; None: every message.
        decode: Makes a value of JSON text, and raises if it cannot.
    """
    params: dict[str, Any] = {
        "topic": topic_id,
        "partition": partition,
        "after": after,
        "bound": bound,
        "limit": limit,
        "since": since,
    }
    if where is not None:
        return _read_where(cursor, topic, params, where, decode)
    cursor.execute(READ, params)
    rows = cursor.fetchall()
    to, has_more = (bound, False) if len(rows) < limit else (rows[-1][0], True)
    return _batch(rows, topic, partition, to, has_more, decode)


def _read_where(
    cursor: Any,
    topic: str,
    params: dict[str, Any],
    where: str,
    decode: Callable[[str], Any],
) -> Batch:
    limit = params["limit"]
    scan = min(limit * SCAN_PER_MESSAGE, SCAN_MESSAGES_MAX)
    cursor.execute(READ_WHERE, {**params, "where": where, "scan": scan})
    rows = cursor.fetchall()
    scanned, last = rows[0][:2]
    found = [row[2:] for row in rows if row[2] is not None]
    if len(found) == limit:
        to, has_more = found[-1][0], True
    elif scanned < scan:
        to, has_more = params["bound"], False
    else:
        to, has_more = last, True
    return _batch(found, topic, params["partition"], to, has_more, decode)


def _batch(
    rows: list[tuple[Any, ...]],
    topic: str,
    partition: int,
    to: int,
    has_more: bool,
    decode: Callable[[str], Any],
) -> Batch:
    """Return rows that have COLUMNS as a batch that ends at *to*, or sooner."""
    try:
        return Batch(_messages(rows, topic, partition, decode), to, has_more)
    except Exception:
        # Whatever it is: the one that cannot be read must not stop the others.
        return _readable(rows, topic, partition, decode)


def _readable(
    rows: list[tuple[Any, ...]],
    topic: str,
    partition: int,
    decode: Callable[[str], Any],
) -> Batch:
    messages: list[Message] = []
    for row in rows:
        try:
            messages += _messages([row], topic, partition, decode)
        except Exception as error:
            if messages:
                break
            message_id, name, _, key, _, published_at = row
            bare = Message(
                message_id,
                topic,
                name,
                None,
                key,
                published_at=published_at,
                partition=partition,
            )
            return Batch([bare], message_id, True, error)
    return Batch(messages, messages[-1].id, True)


def _messages(
    rows: list[tuple[Any, ...]],
    topic: str,
    partition: int,
    decode: Callable[[str], Any],
) -> list[Message]:
    if not rows:
        return []
    # One call for all: a document that is parsed alone costs more than its own text.
    payloads = decode(f"[{','.join([row[2] for row in rows])}]")
    return [
        Message(
            message_id,
            topic,
            name,
            payload,
            key,
            {} if headers == "{}" else decode(headers),
            published_at,
            partition,
        )
        for (message_id, name, _, key, headers, published_at), payload in zip(
            rows, payloads, strict=True
        )
    ]
