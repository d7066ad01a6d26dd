"""
Merge: up to where a partition may be read while a group reads several generations.

The rule and its reasons stand with the function that has it, sql/unread.sql: workers
and those who pull (sql/read.sql) go by the same.
"""

from __future__ import annotations

from typing import NamedTuple

from django_pgqueue.log.closed_days import unread_since
from django_pgqueue.postgres.cursor import Cursor

# Locks: none. The bound was fetched in a statement before this one.
UNREAD = """
SELECT partition, first_unread, up_to, is_halted, fence
  FROM pgqueue_unread(%(group)s, %(topic_id)s, %(bound)s, %(since)s::timestamptz)
"""


class Unread(NamedTuple):
    """The first message of a partition that a group has not read."""

    partition: int
    # None: there is none up to the bound.
    id: int | None
    # Up to which id the partition may be read, so that each key keeps its order.
    end: int
    # Nobody reads it until a human says so.
    is_halted: bool
    # Of the position.
    fence: int

    @property
    def may_be_read(self) -> bool:
        """Whether there is something to read, up to the end."""
        return not self.is_halted and self.id is not None and self.id <= self.end


def unread(cursor: Cursor, group_id: int, topic_id: int, bound: int) -> list[Unread]:
    """
    Return what a group reads next, of each of its partitions.

    Args:
        cursor: In autocommit, or in READ COMMITTED.
        group_id: Of the group.
        topic_id: Of its topic.
        bound: The topic's horizon, fetched in a statement before this one; no end is
            above it.
    """
    since = unread_since(cursor, [group_id])
    cursor.execute(
        UNREAD,
        {"group": group_id, "topic_id": topic_id, "bound": bound, "since": since},
    )
    return [Unread(*row) for row in cursor.fetchall()]
