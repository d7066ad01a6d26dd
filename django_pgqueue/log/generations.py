"""
Generations: the partitions that a topic has, and had before their count was changed.

A change of the count begins a new generation, whose partitions have numbers that no
other one has. So a message says by its partition how keys were spread when it was
published, whatever its publisher's snapshot was; and groups read generations beside one
another in the order of ids: sql/unread.sql.

    1. repartition()   The topic has the new generation; each group gets positions in
                       it. Who does not see that yet still publishes into the former.
    2. close()         Nobody can any more: the former one has a last id.
    3. finish()        A group that has read it up to there loses its positions in it.
    4. drop()          Its messages are gone, too: nobody will read it any more.

Only 1. is somebody's act; the leader does the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from django_pgqueue.exceptions import TopicError
from django_pgqueue.log.closed_days import unread_since
from django_pgqueue.log.horizon import DRAWN, has_older, horizons
from django_pgqueue.log.in_partition import RISING, within
from django_pgqueue.log.names import PARTITION_MAX
from django_pgqueue.postgres.cursor import Cursor, column, rows, value

# Locks: a row lock on the topic until the caller's transaction ends: those who declare
# groups, seek, or remove old messages wait for it. Nobody who publishes does.
TAKE = """
SELECT id, partitions, current_setting('transaction_isolation')
  FROM pgqueue_topic WHERE name = %(topic)s FOR NO KEY UPDATE
"""
TAKE_BY_ID = "SELECT FROM pgqueue_topic WHERE id = %(topic_id)s FOR NO KEY UPDATE"

# Locks: none; so have all of these, where nothing else is said. The one that it has now
# comes first.
GENERATIONS = """
SELECT first_partition, partitions, NULL::bigint
  FROM pgqueue_topic WHERE id = %(topic_id)s
UNION ALL
(SELECT first_partition, partitions, last_id
   FROM pgqueue_generation WHERE topic_id = %(topic_id)s ORDER BY id DESC)
"""

# Former partitions in which a group still has a position.
FORMER = """
SELECT DISTINCT p.partition::int
  FROM pgqueue_generation e
  JOIN pgqueue_consumer_group g ON g.topic_id = e.topic_id
  JOIN pgqueue_position p ON p.group_id = g.id AND p.partition >= e.first_partition
   AND p.partition < e.first_partition + e.partitions
 WHERE e.topic_id = %(topic_id)s ORDER BY 1
"""

# The partitions of all of them. And others that have messages, beyond those: somebody
# has changed the count by hand.
NUMBERS = """
WITH made AS (
    SELECT first_partition, first_partition + partitions AS stop FROM pgqueue_topic
     WHERE id = %(topic_id)s
     UNION ALL
    SELECT first_partition, first_partition + partitions FROM pgqueue_generation
     WHERE topic_id = %(topic_id)s)
SELECT n FROM made, generate_series(made.first_partition::int, made.stop - 1) n
UNION
SELECT n FROM generate_series(
    (SELECT max(made.stop) FROM made),
    (SELECT max(m.partition)::int FROM pgqueue_message m
      WHERE m.topic_id = %(topic_id)s)) n
ORDER BY 1
"""

# Locks: a row lock on the topic, which the caller has, and on a new row.
CHANGE = """
WITH ended AS (
    INSERT INTO pgqueue_generation (topic_id, first_partition, partitions, ended_by)
    SELECT id, first_partition, partitions, pg_current_xact_id()::text::bigint
      FROM pgqueue_topic WHERE id = %(topic_id)s)
UPDATE pgqueue_topic SET first_partition = %(first)s, partitions = %(partitions)s
 WHERE id = %(topic_id)s
"""

# Locks: row locks on new rows. Whoever publishes into the new partitions sees this
# transaction, and draws higher ids than the last one of now.
BEGIN = f"""
INSERT INTO pgqueue_position (group_id, partition, position)
SELECT g.id, n, (SELECT {DRAWN})
  FROM pgqueue_consumer_group g,
       generate_series(%(first)s::int, %(first)s + %(partitions)s - 1) n
 WHERE g.topic_id = %(topic_id)s
    ON CONFLICT (group_id, partition) DO NOTHING
"""

# Locks: row locks on groups, in the order of their ids, until the caller's transaction
# ends. Which of a topic's, or whether one, has positions in former generations. Who
# adds or removes such a position has locked the topic's row before.
NOTE = """
WITH found AS MATERIALIZED (
    SELECT g.id, EXISTS (
               SELECT FROM pgqueue_position p JOIN pgqueue_generation e
                   ON p.partition >= e.first_partition
                  AND p.partition < e.first_partition + e.partitions
                WHERE p.group_id = g.id AND e.topic_id = g.topic_id) AS is_merging
      FROM pgqueue_consumer_group g
     WHERE g.topic_id = %(topic_id)s
       AND (%(group)s::bigint IS NULL OR g.id = %(group)s::bigint)
     ORDER BY g.id FOR UPDATE OF g)
UPDATE pgqueue_consumer_group g SET is_merging = found.is_merging
  FROM found WHERE g.id = found.id AND g.is_merging <> found.is_merging
"""

# Former generations that somebody may still publish into.
OPEN = "SELECT id, ended_by FROM pgqueue_generation WHERE last_id IS NULL ORDER BY id"

# Locks: row locks on what is written. The sequence is read afterwards: a message
# that was published before we knew that nobody can would be beyond the last one.
CLOSE = f"""
UPDATE pgqueue_generation
   SET last_id = (SELECT {DRAWN})
 WHERE id = ANY(%(ids)s::bigint[])
"""

# Topics that have closed generations.
CLOSED = """
SELECT DISTINCT topic_id FROM pgqueue_generation
 WHERE last_id IS NOT NULL ORDER BY topic_id
"""

# Whether somebody may still publish into a former generation, or reads it.
IS_CHANGING = """
SELECT EXISTS (SELECT FROM pgqueue_generation WHERE last_id IS NULL)
       OR EXISTS (SELECT FROM pgqueue_consumer_group WHERE is_merging)
"""

# Locks: row locks on positions, for the statement; what others have locked has its turn
# in the next round. Of those that have nothing to read in a generation that is closed,
# up to the horizon, which the caller has fetched in a statement before this one.
FINISH = f"""
DELETE FROM pgqueue_position WHERE id = ANY(ARRAY(
    SELECT p.id
      FROM pgqueue_generation e
      JOIN pgqueue_consumer_group g ON g.topic_id = e.topic_id
      JOIN pgqueue_position p ON p.group_id = g.id
       AND p.partition >= e.first_partition
       AND p.partition < e.first_partition + e.partitions
     WHERE e.topic_id = %(topic_id)s AND e.last_id <= %(bound)s
       AND p.halted_at IS NULL
       AND (p.leased_until IS NULL OR p.leased_until <= statement_timestamp())
       AND (SELECT m.id FROM pgqueue_message m
             WHERE m.topic_id = e.topic_id
               AND {within("p.partition", after="p.position", up_to="e.last_id")}
             {RISING} LIMIT 1) IS NULL
     ORDER BY p.id FOR UPDATE OF p SKIP LOCKED))
RETURNING partition
"""

# Locks: row locks on what is deleted. Generations without a position, and without a
# message that is not removed.
DROP = f"""
DELETE FROM pgqueue_generation e USING pgqueue_topic t
 WHERE t.id = %(topic_id)s AND e.topic_id = t.id AND e.last_id IS NOT NULL
   AND NOT EXISTS (
       SELECT FROM pgqueue_consumer_group g JOIN pgqueue_position p ON p.group_id = g.id
        WHERE g.topic_id = t.id AND p.partition >= e.first_partition
          AND p.partition < e.first_partition + e.partitions)
   AND (e.last_id <= t.removed_to
        OR (SELECT m.id
              FROM generate_series(e.first_partition::int,
                                   e.first_partition + e.partitions - 1) n
             CROSS JOIN LATERAL (
                   SELECT m.id FROM pgqueue_message m
                    WHERE m.topic_id = t.id AND {within("n", after="t.removed_to")}
                    {RISING} LIMIT 1) m
             LIMIT 1) IS NULL)
RETURNING e.first_partition, e.partitions
"""

# Locks: row locks on new rows, until the caller's transaction ends.
MAKE_POSITIONS = """
INSERT INTO pgqueue_position (group_id, partition, position)
SELECT %(group)s, made.partition, made.position
  FROM unnest(%(partitions)s::int[], %(positions)s::bigint[])
       AS made(partition, position)
ON CONFLICT (group_id, partition) DO NOTHING
"""


class Generation(NamedTuple):
    """Partitions that a topic has, or had."""

    first: int
    partitions: int
    # No message of it has a higher id; None: somebody may still publish one.
    last_id: int | None

    @property
    def numbers(self) -> range:
        """Its partitions."""
        return range(self.first, self.first + self.partitions)

    def has_more(self, position: int) -> bool:
        """Whether it may have a message after *position*."""
        return self.last_id is None or self.last_id > position


def generations(cursor: Cursor, topic_id: int) -> list[Generation]:
    """Return what a topic has now, and then what it had; [] if there is no topic."""
    return rows(Generation, cursor, GENERATIONS, topic_id=topic_id)


def numbers_of(cursor: Cursor, topic_id: int) -> list[int]:
    """Return every partition of a topic that may have messages, in their order."""
    return column(cursor, NUMBERS, topic_id=topic_id)


def former_numbers(cursor: Cursor, topic_id: int) -> list[int]:
    """Return the partitions that groups of a topic read besides those it has now."""
    return column(cursor, FORMER, topic_id=topic_id)


def repartition(cursor: Cursor, topic: str, partitions: int) -> int | None:
    """
    Let a topic have so many partitions from the caller's commit on.

    Its groups read what there is in the order of ids as before, so that messages of one
    key keep theirs; and nobody who publishes or reads waits.

    Args:
        cursor: Inside a transaction of READ COMMITTED that the caller commits.
        topic: Its name.
        partitions: From 1 to PARTITIONS_MAX.

    Returns:
        How many it had; None: it has so many already.

    Raises:
        TopicError: There is no such topic, or another isolation level; or it was
            changed so often that numbers of partitions have run out.
    """
    cursor.execute(TAKE, {"topic": topic})
    row = cursor.fetchone()
    if row is None:
        raise TopicError(
            f"There is no topic {topic!r}: a topic's row is made by its first message, "
            f"or when code that declares it is migrated."
        )
    topic_id, before, isolation = row
    if isolation in ("repeatable read", "serializable"):
        raise TopicError(
            f"The topic {topic!r} cannot be repartitioned in a transaction of "
            f"{isolation.upper()}: it does not see groups that were made since it "
            f"began. Do it outside of it, or in READ COMMITTED."
        )
    if before == partitions:
        return None
    params = {
        "topic_id": topic_id,
        "first": _free(topic, numbers_of(cursor, topic_id), partitions),
        "partitions": partitions,
    }
    cursor.execute(CHANGE, params)
    cursor.execute(BEGIN, params)
    cursor.execute(NOTE, {"topic_id": topic_id, "group": None})
    return int(before)


def make_positions(
    cursor: Cursor, topic_id: int, group_id: int, positions: Mapping[int, int]
) -> None:
    """
    Make positions of a group where it has none; it merges if one is in a former one.

    Args:
        cursor: Inside a transaction that holds a share lock on the topic's row.
        topic_id: Of its topic.
        group_id: Of the group.
        positions: By partition.
    """
    cursor.execute(
        MAKE_POSITIONS,
        {
            "group": group_id,
            "partitions": list(positions),
            "positions": list(positions.values()),
        },
    )
    cursor.execute(NOTE, {"topic_id": topic_id, "group": group_id})


def close(cursor: Cursor) -> int:
    """
    Close generations that nobody can publish into any more; return how many.

    Args:
        cursor: In autocommit: each statement has to see more than the one before.
    """
    cursor.execute(OPEN)
    ids = [each for each, xid in cursor.fetchall() if not has_older(cursor, xid)]
    if ids:
        cursor.execute(CLOSE, {"ids": ids})
    return len(ids)


def closed(cursor: Cursor) -> list[int]:
    """Return the topics that have generations that are closed."""
    return column(cursor, CLOSED)


def is_changing(cursor: Cursor) -> bool:
    """Return whether a change of some topic is not over."""
    return bool(value(cursor, IS_CHANGING))


def finish(cursor: Cursor, topic_id: int) -> list[int]:
    """
    Remove positions that have read closed generations; return their partitions.

    Args:
        cursor: Inside a transaction of READ COMMITTED that the caller commits.
        topic_id: Of the topic.
    """
    # Who seeks back needs them, and waits, or is waited for.
    cursor.execute(TAKE_BY_ID, {"topic_id": topic_id})
    bound = horizons(cursor).of(topic_id)
    done = sorted({*column(cursor, FINISH, topic_id=topic_id, bound=bound)})
    if done:
        cursor.execute(NOTE, {"topic_id": topic_id, "group": None})
    return done


def drop(cursor: Cursor, topic_id: int) -> list[range]:
    """
    Forget generations that nobody has to read any more; return their partitions.

    Args:
        cursor: Inside the transaction of finish().
        topic_id: Of the topic.
    """
    cursor.execute(DROP, {"topic_id": topic_id})
    return [range(first, first + count) for first, count in cursor.fetchall()]


def spans(numbers: Sequence[int]) -> str:
    """Say which partitions these are, in their order: "0 to 15 and 32 to 39"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][-1] == number - 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    return " and ".join(" to ".join(map(str, span)) for span in spans)


def _free(topic: str, taken: Sequence[int], count: int) -> int:
    """Return the lowest number after which so many are nobody's."""
    first = 0
    for number in taken:
        if number - first >= count:
            break
        first = number + 1
    if first + count - 1 > PARTITION_MAX:
        raise TopicError(
            f"The topic {topic!r} has no {count} numbers of partitions left in a row "
            f"below {PARTITION_MAX + 1:,}: those that it has had are taken for as long "
            f"as their messages are kept. Keep messages for less long (retain), or "
            f"publish to a new topic."
        )
    return first


# Merge --------------------------------------------------------------------------------
# Merge: up to where a partition may be read while a group reads several generations.
#
# The rule and its reasons stand with the function that has it, sql/unread.sql: workers
# and those who pull (sql/read.sql) go by the same.


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
    return rows(
        Unread,
        cursor,
        UNREAD,
        group=group_id,
        topic_id=topic_id,
        bound=bound,
        since=since,
    )
