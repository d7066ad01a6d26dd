"""
Merge: up to where a partition may be read while a group reads several generations.

Messages of one key may stand in a partition of each generation. They are read in the
order of their ids, so a partition is read up to the first message that is unread in a
partition of another generation with which it may share keys: what comes before that
has been handled, since a position moves when its batch is done. The lowest unread
message of all is behind none, so somebody can always read on.

Two partitions share keys only where the hash of a key can lead to both: where their
places, from the first one of each generation on, are the same modulo the greatest
common divisor of the two counts. From 8 to 16, a new one waits for one of the old.

What was found stays true however old it is, but for a seek, which raises the fences of
all of the group's positions. So it holds for a claim that has the next fence, and for
what that claim goes on with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import gcd
from typing import NamedTuple

from django_pgqueue.log.closed_days import unread_since
from django_pgqueue.postgres.cursor import Cursor

# Locks: none. Of each position of a group the first message that it has not read, up to
# the bound, which was fetched in a statement before this one: a look at the index for
# each. A partition of no generation stands for itself: somebody has changed the count
# by hand, and nobody knows with whom it shares keys.
UNREAD = """
SELECT p.partition, coalesce(made.first_partition, p.partition)::int,
       coalesce(made.partitions, 1)::int, oldest.id, p.halted_at IS NOT NULL,
       p.fence
  FROM pgqueue_position p
  LEFT JOIN (
       SELECT t.first_partition, t.partitions FROM pgqueue_topic t
        WHERE t.id = %(topic_id)s
        UNION ALL
       SELECT e.first_partition, e.partitions FROM pgqueue_generation e
        WHERE e.topic_id = %(topic_id)s) made
    ON p.partition >= made.first_partition
   AND p.partition < made.first_partition + made.partitions
  LEFT JOIN LATERAL (
       SELECT m.id FROM pgqueue_message m
        WHERE m.topic_id = %(topic_id)s AND m.partition = p.partition
          AND m.id > p.position AND m.id <= %(bound)s
          AND m.published_at >= %(since)s::timestamptz
        ORDER BY m.id LIMIT 1) oldest ON true
 WHERE p.group_id = %(group)s
"""


class Unread(NamedTuple):
    """The first message of a partition that a group has not read."""

    partition: int
    # Of its generation: the first partition, and how many it has.
    first: int
    partitions: int
    # None: there is none up to the bound.
    id: int | None
    # Nobody reads it until a human says so.
    is_halted: bool = False
    # Of the position.
    fence: int = 0


def unread(cursor: Cursor, group_id: int, topic_id: int, bound: int) -> list[Unread]:
    """
    Return what a group reads next, of each of its partitions.

    Args:
        cursor: In autocommit, or in READ COMMITTED.
        group_id: Of the group.
        topic_id: Of its topic.
        bound: The topic's horizon, fetched in a statement before this one.
    """
    since = unread_since(cursor, [group_id])
    cursor.execute(
        UNREAD,
        {"group": group_id, "topic_id": topic_id, "bound": bound, "since": since},
    )
    return [Unread(*row) for row in cursor.fetchall()]


def ends(found: Collection[Unread], bound: int) -> dict[int, int]:
    """
    Return up to which id each partition may be read, so that each key keeps its order.

    Args:
        found: All of a group.
        bound: The topic's horizon; no end is above it.
    """
    generations: dict[tuple[int, int], list[Unread]] = {}
    for each in found:
        generations.setdefault((each.first, each.partitions), []).append(each)
    ends = {each.partition: bound for each in found}
    for (first, count), mine in generations.items():
        for (other_first, other_count), others in generations.items():
            if other_first == first:
                continue
            shared = gcd(count, other_count)
            lowest = _lowest(others, other_first, shared)
            for each in mine:
                low = lowest.get((each.partition - first) % shared)
                if low is not None:
                    ends[each.partition] = min(ends[each.partition], low - 1)
    return ends


def readable(found: Collection[Unread], ends: Mapping[int, int]) -> set[int]:
    """Return the partitions that have something to read, and may be read."""
    return {
        each.partition
        for each in found
        if each.id is not None
        and each.id <= ends[each.partition]
        and not each.is_halted
    }


def _lowest(found: Iterable[Unread], first: int, shared: int) -> dict[int, int]:
    """Return the lowest unread id by the place of partitions modulo *shared*."""
    lowest: dict[int, int] = {}
    for each in found:
        if each.id is not None:
            place = (each.partition - first) % shared
            lowest[place] = min(each.id, lowest.get(place, each.id))
    return lowest
