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

from django_pgqueue.log.message import Message
from django_pgqueue.postgres.cursor import Cursor

# With a filter: how many messages are looked at for each that may be handed over, and
# how many in one statement.
SCAN_PER_MESSAGE, SCAN_MESSAGES_MAX = 20, 20_000

# JSON comes as text: who reads parses it once.
COLUMNS = """
m.id, m.name, m.payload::text AS payload, m.key, m.headers::text AS headers,
m.published_at
"""

# Headers of a message whose payload is not to be seen are left out above that.
HEADERS_BYTES_MAX = 65_536
BARE_COLUMNS = f"""
m.id, m.name, 'null'::text AS payload, m.key,
CASE WHEN pg_column_size(m.headers) <= {HEADERS_BYTES_MAX}
     THEN m.headers::text ELSE '{{}}' END AS headers, m.published_at
"""

# Locks: none; so have all of these. Each day from %(since)s on gives its messages by
# its index, in order; they are merged, since a message whose id is lower may be of a
# later day.
PLAIN = """
SELECT {columns}
  FROM pgqueue_message m
 WHERE m.topic_id = %(topic)s AND m.partition = %(partition)s
   AND m.id > %(after)s AND m.id <= %(bound)s
   AND m.published_at >= %(since)s::timestamptz
 ORDER BY m.id LIMIT %(limit)s
"""

# As many as have %(bytes)s of text, and one at least. The one after them comes without
# its payload: it says that there are more. The text is made once for each, one at a
# time, and its length counted, since what a row takes in its table is compressed.
BOUNDED = """
SELECT sized.id, sized.name,
       CASE WHEN sized.bytes <= %(bytes)s OR sized.bytes = sized.size
            THEN sized.payload END,
       sized.key, sized.headers, sized.published_at, sized.bytes
  FROM (SELECT m.*, octet_length(m.payload) + octet_length(m.headers) AS size,
               sum(octet_length(m.payload) + octet_length(m.headers))
                   OVER (ORDER BY m.id ROWS UNBOUNDED PRECEDING) AS bytes
          FROM ({messages}) m) sized
 WHERE sized.bytes - sized.size <= %(bytes)s
 ORDER BY sized.id
"""

# Of those that contain something, up to where it was looked.
CONTAINING = """
SELECT {columns}
  FROM pgqueue_message m
 WHERE m.topic_id = %(topic)s AND m.partition = %(partition)s
   AND m.id > %(after)s AND m.id <= (SELECT edge.last FROM edge)
   AND m.published_at >= %(since)s::timestamptz
   AND m.payload @> %(where)s::jsonb
 ORDER BY m.id LIMIT %(limit)s
"""

# Looks at %(scan)s messages at most: one row at least, which says how many and up to
# where.
WHERE = """
WITH edge AS MATERIALIZED (
    SELECT count(*) AS scanned, max(id) AS last
      FROM (SELECT m.id FROM pgqueue_message m
             WHERE m.topic_id = %(topic)s AND m.partition = %(partition)s
               AND m.id > %(after)s AND m.id <= %(bound)s
               AND m.published_at >= %(since)s::timestamptz
             ORDER BY m.id LIMIT %(scan)s) seen)
SELECT edge.scanned, edge.last, found.*
  FROM edge LEFT JOIN ({found}) found ON true
 ORDER BY found.id
"""


def _statements(columns: str) -> tuple[str, str]:
    """Return how messages are read: all of them, and those that contain something."""
    plain = PLAIN.format(columns=columns)
    found = BOUNDED.format(messages=CONTAINING.format(columns=columns))
    return BOUNDED.format(messages=plain), WHERE.format(found=found)


READ, READ_WHERE = _statements(COLUMNS)
BARE, BARE_WHERE = _statements(BARE_COLUMNS)

# Of the text of messages that are read at once, with their headers; one always passes.
BATCH_BYTES_DEFAULT = 16_777_216


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
    # Whether it ended where there would have been too many bytes.
    is_cut: bool = False


def read(
    cursor: Cursor,
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
    max_bytes: int = BATCH_BYTES_DEFAULT,
    is_bare: bool = False,
) -> Batch:
    """
    Return the next messages of a partition.

    Those before one that cannot be read; and that one alone, when it comes first.
    The server does not send more text than *max_bytes*, but for a first message that
    is larger.

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
        max_bytes: Of payloads and headers as JSON text, together.
        is_bare: Leave the payloads out: None stands for each.
    """
    params: dict[str, Any] = {
        "topic": topic_id,
        "partition": partition,
        "after": after,
        "bound": bound,
        "limit": limit,
        "since": since,
        "bytes": max_bytes,
    }
    if where is not None:
        return _read_where(cursor, topic, params, where, decode, is_bare)
    cursor.execute(BARE if is_bare else READ, params)
    rows, is_cut = _cut(cursor.fetchall(), max_bytes)
    is_full = is_cut or len(rows) == limit
    to, has_more = (rows[-1][0], True) if is_full else (bound, False)
    batch = as_batch(rows, topic, partition, to, has_more, decode)
    return batch._replace(is_cut=is_cut)


def _read_where(
    cursor: Cursor,
    topic: str,
    params: dict[str, Any],
    where: str,
    decode: Callable[[str], Any],
    is_bare: bool,
) -> Batch:
    limit = params["limit"]
    scan = min(limit * SCAN_PER_MESSAGE, SCAN_MESSAGES_MAX)
    statement = BARE_WHERE if is_bare else READ_WHERE
    cursor.execute(statement, {**params, "where": where, "scan": scan})
    rows = cursor.fetchall()
    scanned, last = rows[0][:2]
    whole = [row[2:] for row in rows if row[2] is not None]
    found, is_cut = _cut(whole, params["bytes"])
    if is_cut or len(found) == limit:
        to, has_more = found[-1][0], True
    elif scanned < scan:
        to, has_more = params["bound"], False
    else:
        to, has_more = last, True
    batch = as_batch(found, topic, params["partition"], to, has_more, decode)
    return batch._replace(is_cut=is_cut)


def _cut(
    rows: list[tuple[Any, ...]], max_bytes: int
) -> tuple[list[tuple[Any, ...]], bool]:
    """Return rows that have COLUMNS, and whether there are more than were sent."""
    is_cut = bool(rows) and rows[-1][-1] > max_bytes
    if is_cut and rows[-1][2] is None:
        rows = rows[:-1]
    return [row[:-1] for row in rows], is_cut


def as_batch(
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
