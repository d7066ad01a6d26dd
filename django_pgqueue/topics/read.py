"""
Read: the messages of one partition after a position, in the order of their ids.

Up to a horizon that was fetched in a statement before this one, so that nothing which
commits later has a lower id.
"""

from __future__ import annotations

import json
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
) -> Batch:
    """
    Return the next messages of a partition.

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
        return _read_where(cursor, topic, params, where)
    cursor.execute(READ, params)
    rows = cursor.fetchall()
    messages = messages_of(rows, topic, partition)
    if len(rows) < limit:
        return Batch(messages, bound, False)
    return Batch(messages, messages[-1].id, True)


def _read_where(cursor: Any, topic: str, params: dict[str, Any], where: str) -> Batch:
    limit = params["limit"]
    scan = min(limit * SCAN_PER_MESSAGE, SCAN_MESSAGES_MAX)
    cursor.execute(READ_WHERE, {**params, "where": where, "scan": scan})
    rows = cursor.fetchall()
    scanned, last = rows[0][:2]
    found = [row[2:] for row in rows if row[2] is not None]
    messages = messages_of(found, topic, params["partition"])
    if len(found) == limit:
        return Batch(messages, messages[-1].id, True)
    if scanned < scan:
        return Batch(messages, params["bound"], False)
    return Batch(messages, last, True)


def messages_of(
    rows: list[tuple[Any, ...]], topic: str, partition: int
) -> list[Message]:
    """Return messages of rows that have COLUMNS."""
    if not rows:
        return []
    # One call for all: a document that is parsed alone costs more than its own text.
    payloads = json.loads(f"[{','.join([row[2] for row in rows])}]")
    return [
        Message(
            message_id,
            topic,
            name,
            payload,
            key,
            {} if headers == "{}" else json.loads(headers),
            published_at,
            partition,
        )
        for (message_id, name, _, key, headers, published_at), payload in zip(
            rows, payloads, strict=True
        )
    ]
