"""
Groups: consumer groups as code declares them, with a position for each partition.

A group's positions are made in the transaction that makes the group. From its commit
on, retention knows what the group has not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_pgqueue.exceptions import TopicError
from django_pgqueue.log import generations
from django_pgqueue.log.seek import starts_of
from django_pgqueue.log.subscriptions import DECLARED_EVERY, STALE_AFTER
from django_pgqueue.postgres.cursor import Cursor, column, has_row, record, rows, value

# Locks: a row lock on a new row; who makes the same topic waits for it.
MAKE_TOPIC = """
INSERT INTO pgqueue_topic (name) VALUES (%(topic)s) ON CONFLICT DO NOTHING
"""

# Locks: a share lock on the topic's row until the caller's transaction ends, which
# retention waits for before it removes what this transaction refers to, and nobody
# else.
TOPIC = """
SELECT id, partitions, removed_to FROM pgqueue_topic WHERE name = %(topic)s FOR SHARE
"""

# Locks: a row lock on the group's row until the caller's transaction ends; who
# declares the same group waits for it. is_new: xmax is 0 in a row that no UPDATE made.
# One without a task is read by whoever asks: no code declares it, so that it is never
# stale, and it does not take a group away from the task that has it.
DECLARE = """
INSERT INTO pgqueue_consumer_group AS g
       (topic_id, topic, name, task, queue, batch, lease_seconds, is_atomic,
        payload_filter, on_error, max_attempts, start, last_declared_at)
VALUES (%(topic_id)s, %(topic)s, %(name)s, %(task)s::text, %(queue)s, %(batch)s,
        %(lease_seconds)s, %(is_atomic)s, %(where)s::jsonb, %(on_error)s,
        %(max_attempts)s, %(start)s,
        CASE WHEN %(task)s::text <> '' THEN statement_timestamp() END)
ON CONFLICT (topic_id, name) DO UPDATE
   SET topic = EXCLUDED.topic, task = EXCLUDED.task, queue = EXCLUDED.queue,
       batch = EXCLUDED.batch, lease_seconds = EXCLUDED.lease_seconds,
       is_atomic = EXCLUDED.is_atomic, payload_filter = EXCLUDED.payload_filter,
       on_error = EXCLUDED.on_error, max_attempts = EXCLUDED.max_attempts,
       last_declared_at = EXCLUDED.last_declared_at
 WHERE EXCLUDED.task <> '' OR g.task = ''
RETURNING id, topic_id, xmax = 0
"""

# Locks: row locks on the groups that were not declared for a while, in the order of
# their ids. One that somebody holds has its turn an hour later: who asks renews leases,
# and must not wait.
DECLARE_AGAIN = f"""
UPDATE pgqueue_consumer_group
   SET last_declared_at = clock_timestamp()
 WHERE id = ANY(ARRAY(
       SELECT g.id FROM pgqueue_consumer_group g
         JOIN pgqueue_topic t ON t.id = g.topic_id
         JOIN unnest(%(topics)s::text[], %(names)s::text[]) AS d(topic, name)
              ON d.topic = t.name AND d.name = g.name
        WHERE g.last_declared_at IS NULL OR g.last_declared_at
              < clock_timestamp() - interval '{DECLARED_EVERY.seconds} seconds'
        ORDER BY g.id FOR UPDATE OF g SKIP LOCKED))
"""

# Locks: row locks on new rows, until the caller's transaction ends. A partition that
# was added by hand since the group began has nothing from before it, so the group reads
# all.
COMPLETE = """
INSERT INTO pgqueue_position (group_id, partition, position)
SELECT g.id, n, t.removed_to
  FROM pgqueue_consumer_group g JOIN pgqueue_topic t ON t.id = g.topic_id,
       generate_series(t.first_partition::int, t.first_partition + t.partitions - 1) n
 WHERE g.id = %(group)s
   AND NOT EXISTS (SELECT FROM pgqueue_position p
                    WHERE p.group_id = g.id AND p.partition = n)
ON CONFLICT (group_id, partition) DO NOTHING
RETURNING partition
"""

# Locks: none. A moment so long ago, by the database's clock.
AGO = """
SELECT to_char((clock_timestamp() - %(ago)s::interval) AT TIME ZONE 'UTC',
               'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
"""

# One that code has declared, and for so long no more. A pause changes nothing about
# that: its positions are kept until somebody forgets it.
IS_STALE = f"""
coalesce(last_declared_at < clock_timestamp() - interval '{STALE_AFTER.days} days',
         false)
"""

SHOWN = f"""
SELECT id, topic_id, topic, name, task, queue, batch, lease_seconds, is_atomic,
       payload_filter::text, on_error, max_attempts, start, is_merging, paused_at,
       paused_by, pause_reason, last_declared_at, created_at, {IS_STALE} AS is_stale
  FROM pgqueue_consumer_group
"""
# Locks: none. One of a topic whose row was deleted is not found, so that nobody waits
# there for messages of a topic of that name that was made since.
ALL = f"{SHOWN} ORDER BY topic, name"
ONE = f"""{SHOWN}
 WHERE name = %(name)s
   AND topic_id = (SELECT t.id FROM pgqueue_topic t WHERE t.name = %(topic)s)
"""

# Locks: a row lock on the group's row, until the caller's transaction ends; a second
# operator waits for it and then finds the group paused. What is being read is
# finished; nothing is claimed any more.
PAUSE = """
UPDATE pgqueue_consumer_group
   SET paused_at = statement_timestamp(), paused_by = nullif(%(by)s::text, ''),
       pause_reason = nullif(%(reason)s::text, '')
 WHERE id = %(group)s AND paused_at IS NULL
RETURNING id
"""

# Locks: as PAUSE.
RESUME = """
UPDATE pgqueue_consumer_group
   SET paused_at = NULL, paused_by = NULL, pause_reason = NULL
 WHERE id = %(group)s AND paused_at IS NOT NULL
RETURNING id
"""

# Locks: row locks on what is deleted, until the caller's transaction ends; a reader
# that has just claimed finds its fence gone.
FORGET = """
WITH gone AS (
    DELETE FROM pgqueue_consumer_group
     WHERE id = %(group)s AND paused_at IS NOT NULL
    RETURNING id)
DELETE FROM pgqueue_position p USING gone WHERE p.group_id = gone.id
RETURNING p.partition
"""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A consumer group, as its row says."""

    id: int
    topic_id: int
    topic: str
    name: str
    task: str
    queue: str
    batch: int
    lease_seconds: float
    is_atomic: bool
    # JSON text; None: every message.
    where: str | None
    on_error: str
    max_attempts: int
    start: str
    # It has positions of several generations of partitions.
    is_merging: bool
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    last_declared_at: datetime | None
    created_at: datetime
    # Declared by code, and for a week no more.
    is_stale: bool

    @property
    def is_pulled(self) -> bool:
        """Whether no task reads for it, and no worker: whoever asks does."""
        return not self.task

    def __str__(self) -> str:
        return f"{self.topic}/{self.name}"


class TopicRow(NamedTuple):
    """What of a topic's row concerns its readers."""

    id: int
    partitions: int
    removed_to: int


class Declared(NamedTuple):
    """What declare() has found or made."""

    id: int
    topic_id: int
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What code says of a group."""

    topic: str
    name: str
    # "": no worker reads for it.
    task: str
    queue: str = "default"
    batch: int = 500
    lease_seconds: float = 60.0
    is_atomic: bool = False
    where: Mapping[str, Any] | None = None
    on_error: str = "skip"
    max_attempts: int = 5
    # "latest", "earliest", or a moment in ISO 8601 with its offset; "" with ago.
    start: str = "latest"
    # So long before the database's clock.
    ago: timedelta | None = None


def declare(cursor: Cursor, declaration: Declaration) -> Declared:
    """
    Write a group as code declares it; a new one gets its positions.

    Where a group that exists has read to does not change, whatever *start* says.

    Args:
        cursor: Django's or psycopg's, inside a transaction of READ COMMITTED that the
            caller commits.
        declaration: What code says.

    Raises:
        MessagesLost: It starts at a time of which retention has removed messages.
        TopicError: It has no task, and a task reads as this group.
    """
    topic = topic_of(cursor, declaration.topic)
    start = _start(cursor, declaration)
    starts: dict[int, int] = {}
    if not has_row(cursor, ONE, topic=declaration.topic, name=declaration.name):
        # Before anything is written: it may be refused.
        every = generations.numbers_of(cursor, topic.id)
        starts = starts_of(cursor, topic.id, topic.removed_to, every, start)
        for former in generations.generations(cursor, topic.id)[1:]:
            for number in former.numbers:
                if not former.has_more(starts[number]):
                    del starts[number]
    where = None if declaration.where is None else json.dumps(declaration.where)
    row = record(
        Declared,
        cursor,
        DECLARE,
        **{**asdict(declaration), "topic_id": topic.id, "where": where, "start": start},
    )
    if row is None:
        raise TopicError(
            f"The topic {declaration.topic!r} has a consumer group "
            f"{declaration.name!r} for which workers read, by the task that @consume "
            f"declares: give yours another name."
        )
    if row.is_new and starts:
        generations.make_positions(cursor, topic.id, row.id, starts)
    else:
        complete(cursor, row.id)
    return row


def declare_again(cursor: Cursor, names: Sequence[tuple[str, str]]) -> None:
    """
    Note that code still declares these groups; once an hour it is written.

    Args:
        cursor: An open cursor.
        names: Of each its topic and its name.
    """
    topics, groups = [topic for topic, _ in names], [name for _, name in names]
    cursor.execute(DECLARE_AGAIN, {"topics": topics, "names": groups})


def topic_of(cursor: Cursor, name: str, *, makes: bool = True) -> TopicRow:
    """
    Return a topic's row, with a share lock that keeps retention from moving on.

    Args:
        cursor: Inside a transaction.
        name: The topic's.
        makes: Whether a topic that nobody has published to is made.

    Raises:
        TopicError: There is no such topic, and it is not to be made.
    """
    if makes:
        cursor.execute(MAKE_TOPIC, {"topic": name})
    row = record(TopicRow, cursor, TOPIC, topic=name)
    if row is None:
        raise TopicError(
            f"There is no topic {name!r}: a topic's row is made by its first message, "
            f"or when code that declares it is migrated."
        )
    return row


def complete(cursor: Cursor, group_id: int) -> list[int]:
    """Make positions for partitions that a topic got since; return which."""
    return sorted(column(cursor, COMPLETE, group=group_id))


def find_all(cursor: Cursor) -> list[GroupRow]:
    """Return every group, by topic and name."""
    return rows(GroupRow, cursor, ALL)


def find(cursor: Cursor, topic: str, name: str) -> GroupRow:
    """
    Return one group.

    Raises:
        TopicError: There is none of this name; the message names those that are.
    """
    row = record(GroupRow, cursor, ONE, topic=topic, name=name)
    if row is None:
        others = [each.name for each in find_all(cursor) if each.topic == topic]
        raise TopicError(
            f"The topic {topic!r} has no consumer group {name!r}; it has "
            f"{_listed(others)}. A group is made when code that declares it with "
            f"@consume is migrated, or by a worker that starts; one for receive(), by "
            f"topic({topic!r}).group({name!r}).create()."
        )
    return row


def pause(cursor: Cursor, group_id: int, *, by: str = "", reason: str = "") -> bool:
    """
    Let nobody claim a partition of the group; what is being read is finished.

    Args:
        cursor: The caller commits.
        group_id: Of the group.
        by: Who pauses, at most 150 characters; "": nobody is named.
        reason: Why, at most 2,000 characters; "": not said.

    Returns:
        False: it was paused already, and who and why stay as they are.
    """
    return has_row(cursor, PAUSE, group=group_id, by=by, reason=reason)


def resume(cursor: Cursor, group_id: int) -> bool:
    """End the pause of a group; False: it was not paused."""
    return has_row(cursor, RESUME, group=group_id)


def forget(cursor: Cursor, group_id: int) -> bool:
    """
    Delete a paused group and its positions; its messages stay.

    For one that no code declares any more: its positions would be old for ever.

    Returns:
        False: it is not paused, so that somebody may still read.
    """
    return has_row(cursor, FORGET, group=group_id)


def _start(cursor: Cursor, declaration: Declaration) -> str:
    if declaration.ago is None:
        return declaration.start
    return str(value(cursor, AGO, ago=declaration.ago))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
