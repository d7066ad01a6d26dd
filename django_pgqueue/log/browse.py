"""
Browse: a page of a topic's messages, for people.

The index of the log has the partition before the id, so a page is put together from
the ends of all partitions: as many rows of each as a page holds, and of them the first.
What is narrowed further looks through a bounded number of rows, and says where to go
on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from django_pgqueue.log.in_partition import FALLING, RISING, within
from django_pgqueue.postgres.cursor import Cursor, one_row, rows
from django_pgqueue.postgres.limits import along_index

# Messages that one look goes through, over all partitions of the topic.
LOOK_ROWS_MAX = 30_000

ID_MAX = 2**63 - 1

# So many of each partition, along the index. A partition that has more of them leaves
# what lies beyond its last one unseen; nothing beyond the nearest of these ends is
# told, since what comes next may be there. Locks: none.
PAGE = """
WITH looked AS MATERIALIZED (
    SELECT m.id, m.partition, m.matches
      FROM unnest(%(partitions)s::smallint[]) part(partition)
     CROSS JOIN LATERAL (
        SELECT m.id, m.partition,
               (%(part)s::text IS NULL
                OR strpos(lower(m.name), lower(%(part)s)) > 0)
               AND (%(name)s::text IS NULL OR m.name = %(name)s)
               AND (%(key)s::text IS NULL OR m.key = %(key)s) AS matches
          FROM pgqueue_message m
         WHERE m.topic_id = %(topic)s AND {inside}
         {along} LIMIT %(rows)s) m
), ends AS (
    SELECT {nearest}(last) AS id
      FROM (SELECT {farthest}(id) AS last FROM looked GROUP BY partition
            HAVING count(*) >= %(rows)s) full_ones
)
SELECT ARRAY(SELECT id FROM looked
              WHERE matches AND (id {end} (SELECT id FROM ends)) IS NOT FALSE
              ORDER BY id {order} LIMIT %(limit)s),
       (SELECT id FROM ends)
"""
INSIDE = within("part.partition", after="%(above)s", up_to="%(below)s::bigint - 1")
NEWEST = PAGE.format(
    inside=INSIDE, along=FALLING, order="DESC", nearest="max", farthest="min", end=">="
)
OLDEST = PAGE.format(
    inside=INSIDE, along=RISING, order="ASC", nearest="min", farthest="max", end="<="
)
del INSIDE, PAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which messages of a topic are looked for; None: whatever."""

    topic_id: int
    # Those that are looked into; all of the topic's, or one.
    partitions: Sequence[int]
    name: str | None = None
    # A part of the name, in letters of either case.
    name_part: str | None = None
    key: str | None = None
    # Only ids between these, without them.
    above: int = -1
    below: int = ID_MAX

    @property
    def is_narrow(self) -> bool:
        """Whether no index serves all that is asked for."""
        return not (self.name is None and self.name_part is None and self.key is None)


@dataclass(frozen=True, slots=True)
class Found:
    """The ids of one page, in its order."""

    ids: list[int]
    # Where the look ended before the page was full; None: that was all.
    end: int | None


def browse(
    cursor: Cursor, wanted: Wanted, *, limit: int, is_oldest_first: bool = False
) -> Found:
    """
    Return the newest messages that are wanted, or the oldest: at most *limit*.

    Args:
        cursor: On the database of the log. Without plans that sort: see
            postgres/limits.py.
        wanted: Which ones.
        limit: Of a page.
        is_oldest_first: From the other end.
    """
    rows = limit
    if wanted.is_narrow:
        rows = max(limit, LOOK_ROWS_MAX // max(len(wanted.partitions), 1))
    cursor.execute(
        OLDEST if is_oldest_first else NEWEST,
        {
            "partitions": list(wanted.partitions),
            "topic": wanted.topic_id,
            "name": wanted.name,
            "part": wanted.name_part,
            "key": wanted.key,
            "above": wanted.above,
            "below": wanted.below,
            "rows": rows,
            "limit": limit,
        },
    )
    ids, end = one_row(cursor)
    return Found(ids, None if len(ids) >= limit else end)


# Overview -----------------------------------------------------------------------------


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
    return rows(Day, cursor, DAYS)
