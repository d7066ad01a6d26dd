"""Foresee: what a seek would do, before anybody does it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django_pgqueue.exceptions import TopicError
from django_pgqueue.log.seek import starts_of
from django_pgqueue.postgres.cursor import Cursor

# Messages that are counted, per partition.
COUNTED_MESSAGES_MAX = 10_000

# Locks: none.
GROUP = """
SELECT t.id, t.name, t.removed_to, g.name,
       ARRAY(SELECT p.partition FROM pgqueue_position p
              WHERE p.group_id = g.id ORDER BY p.partition)
  FROM pgqueue_consumer_group g JOIN pgqueue_topic t ON t.id = g.topic_id
 WHERE g.id = %(group)s
"""

# Along the index of the log, between where a position is and where it would be; no
# further than the limit. Locks: none.
BETWEEN = """
SELECT p.partition, p.position, sought.position,
       (SELECT count(*)
          FROM (SELECT FROM pgqueue_message m
                 WHERE m.topic_id = %(topic)s AND m.partition = p.partition
                   AND m.id > least(p.position, sought.position)
                   AND m.id <= greatest(p.position, sought.position)
                 ORDER BY m.id LIMIT %(limit)s) counted)
  FROM pgqueue_position p
  JOIN unnest(%(partitions)s::int[], %(positions)s::bigint[])
       AS sought(partition, position) ON sought.partition = p.partition
 WHERE p.group_id = %(group)s
 ORDER BY p.partition
"""


class Step(NamedTuple):
    """What a seek would do in one partition."""

    partition: int
    before: int
    after: int
    # Messages between the two, up to COUNTED_MESSAGES_MAX: read again if it goes back,
    # else skipped.
    messages: int

    @property
    def is_back(self) -> bool:
        """Whether it would read messages again."""
        return self.after < self.before

    @property
    def is_more(self) -> bool:
        """Whether there may be more messages than were counted."""
        return self.messages >= COUNTED_MESSAGES_MAX


def foresee(
    cursor: Cursor,
    group_id: int,
    to: int | str | datetime,
    *,
    partition: int | None = None,
) -> list[Step]:
    """
    Return what seek() with these arguments would do now.

    Args:
        cursor: On the primary, in READ COMMITTED.
        group_id: Of the group.
        to: As for seek().
        partition: As for seek().

    Raises:
        MessagesLost: Retention has removed messages after that place.
        TopicError: There is no such place, partition or group.
    """
    cursor.execute(GROUP, {"group": group_id})
    row = cursor.fetchone()
    if row is None:
        raise TopicError(f"There is no consumer group with the id {group_id}.")
    topic_id, topic, removed_to, name, every = row
    if partition is not None and partition not in every:
        raise TopicError(
            f"The group {topic}/{name} has no partition {partition}: it has "
            f"{len(every)}, from 0 on."
        )
    wanted = every if partition is None else [partition]
    starts = starts_of(cursor, topic_id, removed_to, wanted, to)
    cursor.execute(
        BETWEEN,
        {
            "group": group_id,
            "topic": topic_id,
            "partitions": wanted,
            "positions": [starts[each] for each in wanted],
            "limit": COUNTED_MESSAGES_MAX,
        },
    )
    return [Step(*row) for row in cursor.fetchall()]
