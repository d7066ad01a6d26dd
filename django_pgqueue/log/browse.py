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

from django_pgqueue.log.in_partition import FALLING, RISING, within
from django_pgqueue.postgres.cursor import Cursor, one_row

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
