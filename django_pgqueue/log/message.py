"""
Fetch: messages that jobs refer to, by id and time.

The time names the one day of the log that has the message, so that no other is looked
at. A message is found by its id and told as the JSON that stands for it in a job's
arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django_pgqueue.postgres.cursor import Cursor, record

# What stands for a message in the arguments of a job, as JSON.
AS_JSON = """
jsonb_build_object(
    'id', m.id, 'name', m.name, 'key', m.key, 'payload', m.payload,
    'headers', m.headers, 'published_at', m.published_at, 'partition', m.partition,
    'topic', split_part(m.name, '.', 1))
"""

# Locks: none.
FETCH = f"""
SELECT {AS_JSON}::text FROM pgqueue_message m
 WHERE m.id = %(id)s AND m.published_at = %(published_at)s
"""

# Locks: none. Row by row, through the key of the one day that each is in: LIMIT keeps
# the planner from reading whole days for a join. What is between the first and the last
# time is all that the statement opens. What a row takes in its table is compressed, so
# the text is what is counted, once it is known not to be large there already.
# is_stored: the row is there, so that whoever passes the message on refers to it, too.
FETCH_MANY = f"""
SELECT told.id, told.text
  FROM (SELECT found.id, found.text,
               sum(octet_length(found.text))
                   OVER (ORDER BY found.place ROWS UNBOUNDED PRECEDING) AS bytes
          FROM (SELECT whole.id, whole.text, wanted.place
                  FROM unnest(%(ids)s::bigint[], %(times)s::timestamptz[])
                       WITH ORDINALITY AS wanted(id, published_at, place)
                 CROSS JOIN LATERAL (
                       SELECT m.id, jsonb_build_object(
                                  '__pgqueue__', 'message',
                                  'value', {AS_JSON} || '{{"is_stored": true}}')::text
                              AS text
                         FROM pgqueue_message m
                        WHERE m.id = wanted.id AND m.published_at = wanted.published_at
                          AND m.published_at BETWEEN %(first)s::timestamptz
                                                 AND %(last)s::timestamptz
                          AND pg_column_size(m.payload) + pg_column_size(m.headers)
                              <= %(bytes)s
                        LIMIT 1) whole) found
         WHERE octet_length(found.text) <= %(bytes)s) told
 WHERE told.bytes <= %(total)s
"""

# Of the text of one message, and of all that are brought for one claim. Larger ones,
# and those beyond, are fetched when their jobs start, so that a claim of a thousand
# jobs does not hold a thousand of them in memory.
PREFETCH_BYTES_MAX = 65_536
PREFETCH_TOTAL_BYTES_MAX = 8_388_608


def fetch(cursor: Cursor, message_id: int, published_at: Any) -> str | None:
    """
    Return a message as JSON text; None: its topic's retention has removed it.

    Args:
        cursor: Django's or psycopg's.
        message_id: Its id.
        published_at: Its time, to the microsecond; a datetime, or text.
    """
    return record(str, cursor, FETCH, id=message_id, published_at=published_at)


def fetch_many(
    cursor: Cursor, wanted: Sequence[tuple[int, datetime]]
) -> dict[int, str]:
    """
    Return what stands for each message in a job's arguments, by id, as JSON text.

    Those that are gone, or larger than PREFETCH_BYTES_MAX, are left out, and so are
    those after PREFETCH_TOTAL_BYTES_MAX of text.

    Args:
        cursor: An open cursor.
        wanted: Ids and times; at least one.
    """
    times = [published_at for _, published_at in wanted]
    cursor.execute(
        FETCH_MANY,
        {
            "ids": [message_id for message_id, _ in wanted],
            "times": times,
            "first": min(times),
            "last": max(times),
            "bytes": PREFETCH_BYTES_MAX,
            "total": PREFETCH_TOTAL_BYTES_MAX,
        },
    )
    return dict(cursor.fetchall())


# Message ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """A published message, as it stands in its topic's log."""

    # Rises in the order of publishing, over all topics, with gaps.
    id: int
    topic: str
    # The topic's, or that with further words: "orders.created".
    name: str
    payload: Any
    # Messages of one key keep their order; None: of no key.
    key: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    # By the database's clock, in UTC. Every handler is given one: only a message that
    # was made by hand, and so is of no log, may have None.
    published_at: datetime = None  # type: ignore[assignment]
    # In which part of its topic's log it stands.
    partition: int = 0
