"""Overview: how much topics hold, for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from django_pgqueue.log.in_partition import FALLING, RISING, within
from django_pgqueue.postgres.cursor import Cursor, one_row
from django_pgqueue.postgres.limits import along_index

# Messages that are counted, per topic.
COUNTED_MESSAGES_MAX = 10_000

# Counted along the index of the log from an id on, partition by partition, and no
# further than the limit. Locks: none.
COUNT = f"""
SELECT t.id, (SELECT count(*)
                FROM (SELECT
                        FROM (SELECT generate_series(
                                  t.first_partition::int,
                                  t.first_partition + t.partitions - 1)
                               UNION ALL
                              SELECT generate_series(
                                  e.first_partition::int,
                                  e.first_partition + e.partitions - 1)
                                FROM pgqueue_generation e
                               WHERE e.topic_id = t.id) part(number)
                       CROSS JOIN LATERAL (
                          SELECT FROM pgqueue_message m
                           WHERE m.topic_id = t.id
                             AND {within("part.number", after="%(first)s::bigint - 1")}
                             AND m.published_at >= %(since)s
                           {RISING} LIMIT %(limit)s) m
                       LIMIT %(limit)s) counted)
  FROM pgqueue_topic t
 WHERE t.id = ANY(%(topics)s)
"""

# The first and the last message of one topic: an end of each partition. Locks: none.
ENDS = f"""
SELECT (SELECT min(m.id)
          FROM unnest(%(partitions)s::int[]) part
         CROSS JOIN LATERAL (
            SELECT m.id FROM pgqueue_message m
             WHERE m.topic_id = %(topic)s AND {within("part")}
             {RISING} LIMIT 1) m),
       (SELECT max(m.id)
          FROM unnest(%(partitions)s::int[]) part
         CROSS JOIN LATERAL (
            SELECT m.id FROM pgqueue_message m
             WHERE m.topic_id = %(topic)s AND {within("part")}
             {FALLING} LIMIT 1) m)
"""

# The days of the log, those ahead too; sizes with indexes, by the files, and the pages
# of the rows alone. Locks: none.
DAYS = """
SELECT to_date(right(c.relname, 8), 'YYYYMMDD'), pg_total_relation_size(c.oid),
       pg_relation_size(c.oid) / current_setting('block_size')::integer
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'pgqueue_message'::regclass
   AND c.relname ~ '^pgqueue_message_[0-9]{8}$'
 ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Day:
    """A day (UTC) of the log, over all topics."""

    day: date
    bytes: int
    # Without those of indexes, and of what is stored apart.
    pages: int


def count_since(
    cursor: Cursor, topic_ids: list[int], first_id: int, since: datetime
) -> dict[int, int]:
    """
    Return how many messages each topic has had since then, up to COUNTED_MESSAGES_MAX.

    Args:
        cursor: On the database of the log, in a transaction with Plans.IN_ORDER.
        topic_ids: Of which topics.
        first_id: What moment.first_id() says of *since*.
        since: With its zone.
    """
    params = {
        "topics": topic_ids,
        "first": first_id,
        "since": since,
        "limit": COUNTED_MESSAGES_MAX,
    }
    with along_index(cursor):
        cursor.execute(COUNT, params)
        return dict(cursor.fetchall())


def ends(
    cursor: Cursor, topic_id: int, partitions: Sequence[int]
) -> tuple[int | None, int | None]:
    """
    Return the ids of a topic's oldest and newest message; None: it has none.

    Args:
        cursor: In a transaction with Plans.IN_ORDER.
        topic_id: Of the topic.
        partitions: All that it has, former ones as well.
    """
    cursor.execute(ENDS, {"topic": topic_id, "partitions": list(partitions)})
    oldest, newest = one_row(cursor)
    return oldest, newest


def days(cursor: Cursor) -> list[Day]:
    """Return the days of the log, the oldest first, those that are made ahead too."""
    cursor.execute(DAYS)
    return [Day(*row) for row in cursor.fetchall()]
