"""
Seek: let a group read on from somewhere else, while it is read; or see what would be.

Raises the fence and frees the lease: what is being read now is refused when it is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from django_pgqueue.exceptions import MessagesLost, TopicError
from django_pgqueue.log import generations
from django_pgqueue.log.horizon import horizons
from django_pgqueue.log.in_partition import RISING, within
from django_pgqueue.postgres.cursor import Cursor, column, one_row
from django_pgqueue.postgres.limits import Plans, planned

EARLIEST, LATEST = "earliest", "latest"

# By how much the times of two messages may be in another order than their ids: between
# the two, a session draws both; and the server's clock may have been put back.
DISORDER_SECONDS = 10.0

# Messages that are counted for a preview, per partition.
COUNTED_MESSAGES_MAX = 10_000

# Locks: none.
GROUP = """
SELECT t.id, t.name, t.removed_to, g.name, g.is_merging,
       current_setting('transaction_isolation')
  FROM pgqueue_consumer_group g JOIN pgqueue_topic t ON t.id = g.topic_id
 WHERE g.id = %(group)s
"""

# Locks: a share lock on the topic's row until the caller's transaction ends: retention
# neither removes what is sought meanwhile, nor overlooks where the group is now.
GROUP_TO_SEEK = f"{GROUP} FOR SHARE OF t"

# Locks: none.
PARTITIONS = """
SELECT p.partition FROM pgqueue_position p WHERE p.group_id = %(group)s
 ORDER BY p.partition
"""

# Along the index of the log, between where positions are, or were when they were
# removed, and where they would be; in each partition no further than the limit. Locks:
# none.
BETWEEN = f"""
SELECT coalesce(sum(messages) FILTER (WHERE is_back), 0)::int,
       coalesce(sum(messages) FILTER (WHERE NOT is_back), 0)::int,
       coalesce(max(messages), 0) >= %(limit)s
  FROM unnest(%(partitions)s::int[], %(positions)s::bigint[], %(lasts)s::bigint[])
       AS sought(partition, position, last)
  LEFT JOIN pgqueue_position p
       ON p.group_id = %(group)s AND p.partition = sought.partition
 CROSS JOIN LATERAL (SELECT coalesce(p.position, sought.last)) was(position)
 CROSS JOIN LATERAL (
       SELECT sought.position < was.position,
              least(was.position, sought.position),
              greatest(was.position, sought.position)) span(is_back, low, high)
 CROSS JOIN LATERAL (
       SELECT count(*)
         FROM (SELECT FROM pgqueue_message m
                WHERE m.topic_id = %(topic)s
                  AND {within("sought.partition", after="span.low", up_to="span.high")}
                {RISING} LIMIT %(limit)s) found) counted(messages)
"""

# Locks: none. The highest id below which everything was published some seconds before
# the time: found by halves in the index of ids, over all topics, since ids rise with
# the time but for those seconds.
BEFORE = """
WITH RECURSIVE half(low, high) AS (
    SELECT %(low)s::bigint, %(high)s::bigint
    UNION ALL
    SELECT CASE WHEN is_before THEN least(found.id, half.high) ELSE half.low END,
           CASE WHEN is_before THEN half.high ELSE middle.id END
      FROM half,
           LATERAL (SELECT half.low + (half.high - half.low) / 2 AS id) middle
           LEFT JOIN LATERAL (SELECT m.id, m.published_at FROM pgqueue_message m
                               WHERE m.id > middle.id ORDER BY m.id LIMIT 1) found
                  ON true,
           LATERAL (SELECT coalesce(
               found.published_at
               < %(time)s::timestamptz - make_interval(secs => %(disorder)s::float8),
               false) AS is_before) compared
     WHERE half.low < half.high)
SELECT max(low) FROM half
"""

# Locks: none. Of each partition the first message at the time or after it; NULL: none
# so far. It looks at the messages of the few seconds by which BEFORE goes back.
FIRST = f"""
SELECT asked.partition,
       (SELECT m.id FROM pgqueue_message m
         WHERE m.topic_id = %(topic_id)s
           AND {within("asked.partition", after="%(low)s")}
           AND m.published_at >= %(time)s::timestamptz
         {RISING} LIMIT 1)
  FROM unnest(%(partitions)s::int[]) AS asked(partition)
"""

# Locks: row locks on the positions, until the caller's transaction ends, in the order
# of their ids, so that two who seek do not deadlock. It waits for a handler's
# transaction that has moved one and not committed yet; then this one holds.
SEEK = """
WITH was AS MATERIALIZED (
    SELECT p.id, p.partition, p.position, sought.position AS target
      FROM pgqueue_position p
      JOIN unnest(%(partitions)s::int[], %(positions)s::bigint[])
           AS sought(partition, position) ON sought.partition = p.partition
     WHERE p.group_id = %(group)s
     ORDER BY p.id FOR UPDATE OF p)
UPDATE pgqueue_position AS p
   SET position = was.target, moved_at = statement_timestamp(), fence = p.fence + 1,
       leased_by = NULL, leased_until = NULL, failures = 0, retry_at = NULL,
       single_to = NULL, errors = NULL, halted_at = NULL, halted_for = NULL
  FROM was WHERE p.id = was.id
RETURNING p.partition, was.position, p.position
"""

# Locks: row locks on all positions of a group, as SEEK. Whoever reads another partition
# of a group that merges, or is about to, goes by where this one was.
FENCE_OTHERS = """
WITH every AS MATERIALIZED (
    SELECT p.id FROM pgqueue_position p WHERE p.group_id = %(group)s
     ORDER BY p.id FOR UPDATE OF p)
UPDATE pgqueue_position AS p
   SET fence = p.fence + 1, leased_by = NULL, leased_until = NULL
  FROM every WHERE p.id = every.id
   AND p.partition <> ALL(%(partitions)s::int[])
"""


class _Group(NamedTuple):
    """What a seek has to know of a group."""

    topic_id: int
    removed_to: int
    is_merging: bool
    isolation: str
    partitions: list[int]
    # Partitions that it has read to their end and has no position in: their last ids.
    ended: dict[int, int]


class Sought(NamedTuple):
    """Where a partition's position was, and where it is now."""

    partition: int
    before: int
    now: int


class SeekPreview(NamedTuple):
    """How many messages a seek would let be read again, and how many it would skip."""

    again: int
    skipped: int
    # Whether there may be more: COUNTED_MESSAGES_MAX are counted in each partition.
    is_more: bool


def seek(
    cursor: Cursor,
    group_id: int,
    to: int | str | datetime,
    *,
    partition: int | None = None,
) -> list[Sought]:
    """
    Move a group's positions; what is being read is refused when it is done.

    Also ends what is halted and what waits for another attempt.

    Args:
        cursor: Inside a transaction of READ COMMITTED that the caller commits.
        group_id: Of the group.
        to: "earliest": what retention has left; "latest": what is published from now
            on; an id: what comes after it; a moment with its zone: every message that
            was published at that moment or later, and then perhaps a few that are
            some milliseconds older.
        partition: That one alone; None: all.

    Raises:
        MessagesLost: Retention has removed messages after that place.
        TopicError: There is no such place, partition or group; or a moment is sought
            in another isolation level.
    """
    group = _group(cursor, GROUP_TO_SEEK, group_id, partition)
    is_moment = not isinstance(to, int) and to not in (EARLIEST, LATEST)
    if is_moment and group.isolation in ("repeatable read", "serializable"):
        # The horizon is of now, and the messages would be those of the snapshot.
        raise TopicError(
            f"A moment cannot be sought in a transaction of {group.isolation.upper()}: "
            f"it does not see what was published since it began, and the group would "
            f"pass over that. Seek outside of it, or in READ COMMITTED."
        )
    places = _places(cursor, group, to)
    if group.is_merging and partition is not None:
        cursor.execute(FENCE_OTHERS, {"group": group_id, "partitions": [partition]})
    again = {
        number: last
        for number, last in zip(places["partitions"], places["lasts"], strict=True)
        if number in group.ended
    }
    if again:
        generations.make_positions(cursor, group.topic_id, group_id, again)
    cursor.execute(SEEK, {"group": group_id, **places})
    return sorted(Sought(*moved) for moved in cursor.fetchall())


def preview_seek(
    cursor: Cursor,
    group_id: int,
    to: int | str | datetime,
    *,
    partition: int | None = None,
) -> SeekPreview:
    """
    Return what seek() with these arguments would do now.

    Args:
        cursor: On the primary, in a transaction of READ COMMITTED.
        group_id: Of the group.
        to: As for seek().
        partition: As for seek().

    Raises:
        MessagesLost, TopicError: As seek().
    """
    group = _group(cursor, GROUP, group_id, partition)
    asked = {
        "group": group_id,
        "topic": group.topic_id,
        **_places(cursor, group, to),
        "limit": COUNTED_MESSAGES_MAX,
    }
    with planned(cursor, Plans.IN_ORDER):
        cursor.execute(BETWEEN, asked)
        return SeekPreview(*one_row(cursor))


def _group(
    cursor: Cursor, statement: str, group_id: int, partition: int | None
) -> _Group:
    """Return a group, and which of its partitions are meant; raise TopicError."""
    cursor.execute(statement, {"group": group_id})
    row = cursor.fetchone()
    if row is None:
        raise TopicError(f"There is no consumer group with the id {group_id}.")
    topic_id, topic, removed_to, name, is_merging, isolation = row
    every = column(cursor, PARTITIONS, group=group_id)
    if partition is not None and partition not in every:
        raise TopicError(
            f"The group {topic}/{name} has no partition {partition}; it has "
            f"{generations.spans(every)}."
        )
    ended: dict[int, int] = {}
    if partition is None:
        ended = {
            number: each.last_id
            for each in generations.generations(cursor, topic_id)
            if each.last_id is not None
            for number in each.numbers
            if number not in every
        }
    wanted = every if partition is None else [partition]
    return _Group(topic_id, removed_to, is_merging, isolation, wanted, ended)


def _places(
    cursor: Cursor, group: _Group, to: int | str | datetime
) -> dict[str, list[int]]:
    """Return where each partition would be, as SEEK and BETWEEN take it."""
    every = sorted({*group.partitions, *group.ended})
    starts = starts_of(cursor, group.topic_id, group.removed_to, every, to)
    wanted = [
        number
        for number in every
        if number not in group.ended or starts[number] < group.ended[number]
    ]
    return {
        "partitions": wanted,
        "positions": [starts[number] for number in wanted],
        "lasts": [group.ended.get(number, 0) for number in wanted],
    }


def starts_of(
    cursor: Cursor,
    topic_id: int,
    removed_to: int,
    partitions: Sequence[int],
    to: int | str | datetime,
) -> dict[int, int]:
    """
    Return the position of each partition from which *to* is read.

    Args:
        cursor: Inside a transaction that holds a share lock on the topic's row.
        topic_id: Of the topic.
        removed_to: Of the topic's row.
        partitions: Which.
        to: As for seek(); a moment also as text in ISO 8601, with its offset.

    Raises:
        MessagesLost: Retention has removed messages after that place.
        TopicError: There is no such place.
    """
    if to == EARLIEST:
        return dict.fromkeys(partitions, removed_to)
    bound = horizons(cursor).of(topic_id)
    if to == LATEST:
        return dict.fromkeys(partitions, bound)
    if isinstance(to, int) and not isinstance(to, bool):
        check_position(to, removed_to, bound)
        return dict.fromkeys(partitions, to)
    moment = as_moment(to)
    low = before(cursor, moment, removed_to, bound)
    return firsts(cursor, topic_id, partitions, moment, low=low, bound=bound)


def firsts(
    cursor: Cursor,
    topic_id: int,
    partitions: Sequence[int],
    moment: datetime,
    *,
    low: int,
    bound: int,
) -> dict[int, int]:
    """
    Return the position of each partition after which *moment* begins.

    Args:
        cursor: On the primary.
        topic_id: Of the topic.
        partitions: Which.
        moment: With its zone.
        low: What before() says of it.
        bound: The highest id that can be read, fetched before this is called.
    """
    params = {
        "topic_id": topic_id,
        "partitions": list(partitions),
        "low": low,
        "time": moment,
    }
    cursor.execute(FIRST, params)
    # Above the bound there may be others, which are not to be seen yet.
    return {
        number: bound if first is None else min(first - 1, bound)
        for number, first in cursor.fetchall()
    }


def as_moment(value: object) -> datetime:
    """
    Return a moment with its zone.

    Raises:
        TopicError: It is none; or it has no zone, so nobody knows which one is meant.
    """
    moment = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
    if not isinstance(moment, datetime):
        raise TopicError(
            f"{value!r} is no place in a log: write 'earliest', 'latest', a message's "
            f"id, or a moment in ISO 8601 such as '2026-01-31T12:00+00:00'."
        )
    if moment.tzinfo is None:
        raise TopicError(
            f"{value!r} has no time zone: write '2026-01-31T12:00+00:00', or pass an "
            f"aware datetime."
        )
    return moment.astimezone(UTC)


# Locks: none. When the first message that is left was published, of any topic.
OLDEST = """
SELECT m.id, m.published_at FROM pgqueue_message m WHERE m.id > %(removed_to)s
 ORDER BY m.id LIMIT 1
"""


def before(cursor: Cursor, moment: datetime, removed_to: int, bound: int) -> int:
    """
    Return an id below which everything was published before *moment*, of any topic.

    Args:
        cursor: On the primary.
        moment: With its zone.
        removed_to: Of the topic's row.
        bound: The highest id that is looked at.

    Raises:
        MessagesLost: Retention has removed messages of the topic after that.
    """
    cursor.execute(
        BEFORE,
        {
            "low": removed_to,
            "high": bound,
            "time": moment,
            "disorder": DISORDER_SECONDS,
        },
    )
    (found,) = one_row(cursor)
    if removed_to and found <= removed_to:
        _refuse_lost(cursor, moment, removed_to)
    return max(int(found), removed_to)


def check_position(to: int, removed_to: int, bound: int) -> None:
    """Raise MessagesLost or TopicError if nothing is to be read after the id *to*."""
    if to < removed_to:
        raise MessagesLost(
            f"Retention has removed this topic's messages up to the id {removed_to:,}, "
            f"so nothing can be read after {to:,}. Seek to 'earliest', which is "
            f"{removed_to:,}, or later."
        )
    if to > bound:
        raise TopicError(
            f"The log can be read up to the id {bound:,}; {to:,} lies beyond it, and "
            f"messages that are yet to come would be skipped. Seek to 'latest'."
        )


def _refuse_lost(cursor: Cursor, moment: datetime, removed_to: int) -> None:
    """Raise if messages of that time may have been removed."""
    cursor.execute(OLDEST, {"removed_to": removed_to})
    row = cursor.fetchone()
    if row is not None and row[1] <= moment:
        return
    there = (
        "nothing is left of it"
        if row is None
        else f"what is left begins at about {row[1].astimezone(UTC).isoformat()}"
    )
    raise MessagesLost(
        f"Retention has removed this topic's messages up to the id {removed_to:,}; "
        f"{there}. Seek to 'earliest', or to a later moment than "
        f"{moment.isoformat()}."
    )
