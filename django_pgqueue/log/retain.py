"""
Retain: remove what topics keep no longer, by age and by size, and say who loses.

By whole days, in steps, each of which a crash may follow: the next round finds out by
itself what is left to do.

    1. due()         Which topics have days to remove: days that are closed, and that no
                     open transaction can still publish into.
    2. announce()    In one transaction: the topic says up to where it is removed, and
                     groups that have not read all of it are halted, with what they lose
                     in their positions. A seek, and a group that begins, waits for this
                     lock (TOPIC in groups.py), and so is either seen or sees it.
    3. inline_…()    Jobs and dead letters that refer to such a message get what is in
                     it, a slice of them at a time.
    4. drop_day() of log/days.py, where no topic keeps the day; else delete_batch().

Nothing that publishes or reads waits for any of it, but for the positions that are
halted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from psycopg import sql

from django_pgqueue.log import days as log
from django_pgqueue.log.backfill import WHOLE
from django_pgqueue.log.closed_days import closed_days
from django_pgqueue.log.generations import numbers_of
from django_pgqueue.log.horizon import horizons
from django_pgqueue.log.in_partition import FALLING, RISING, within
from django_pgqueue.log.positions import ERRORS_MAX
from django_pgqueue.log.sizes import Sizes, first_within, latest
from django_pgqueue.postgres.cursor import Cursor, column, one_row
from django_pgqueue.postgres.day_tables import DAY, LOG, first_kept
from django_pgqueue.postgres.limits import Plans, planned

# Losses -------------------------------------------------------------------------------


# Lost messages that are counted exactly, of one group in one partition.
LOST_MAX = 10_000


class Loss(NamedTuple):
    """What a group loses: messages that it has not read and that are removed."""

    topic: str
    group: str
    task: str
    partitions: tuple[int, ...]
    messages: int
    # Whether that is all of them, or they were counted no further.
    is_exact: bool
    first_id: int
    last_id: int
    first_at: datetime
    last_at: datetime


class BackfillLoss(NamedTuple):
    """What a subscription loses: older messages that it has no job for yet."""

    topic: str
    pattern: str
    queue: str
    task: str
    # Whether it is, so that it got none; else its back-fill was too slow.
    is_disabled: bool
    messages: int
    # Whether that is all of them, or they were counted no further.
    is_exact: bool
    first_id: int
    last_id: int
    first_at: datetime
    last_at: datetime


def loss_entry(loss: Loss | BackfillLoss, one: str, many: str, **more: str) -> str:
    """
    Return what a row keeps of a loss, as JSON.

    Args:
        loss: What was lost.
        one: What had not happened to it, if it is one message: "it was read".
        many: The same, if they are several.
        more: To keep besides.
    """
    plus = "" if loss.is_exact else " or more"
    is_one = loss.messages == 1 and loss.is_exact
    return json.dumps(
        {
            "message": f"{loss.messages:,}{plus} message{'' if is_one else 's'} of "
            f"{loss.topic} {'was' if is_one else 'were'} removed before "
            f"{one if is_one else many}: ids {loss.first_id} to {loss.last_id}, of "
            f"{loss.first_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} to "
            f"{loss.last_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC.",
            **more,
            "messages": loss.messages,
            "is_exact": loss.is_exact,
            "first_id": loss.first_id,
            "last_id": loss.last_id,
            "first_at": loss.first_at.isoformat(),
            "last_at": loss.last_at.isoformat(),
        }
    )


# Retain -------------------------------------------------------------------------------


# Jobs, or dead letters, that are looked at in one statement.
INLINE_ROWS_MAX = 2_000
# Messages deleted in one statement.
DELETE_ROWS_MAX = 1_000
# How long the positions of a group may be somebody's; then it is tried again later.
PATIENCE = "2s"
# Days that are as good as empty go when they are so old, where all is kept for ever.
EMPTY_KEPT = timedelta(days=7)

# Of a log that was not measured: no bound of bytes removes anything.
NO_SIZES = Sizes()

# Locks: none; so have all of these, where nothing else is said. The first day that each
# topic keeps messages of; NULL: it keeps all. Then how many bytes it may have; and the
# first day that it keeps where it waits for the pipeline job ingest, and up to which id
# that has read. A place that nothing was written to for all of that time is given up,
# and a topic that was never ingested waits if it says so itself.
TOPICS = """
SELECT t.id, t.name, kept.first, t.retain_bytes,
       CASE WHEN t.wait_for_ingest IS NOT NULL OR ingested.read_to IS NOT NULL
            THEN (kept.first - kept.wait)::date END,
       coalesce(ingested.read_to, 0)
  FROM pgqueue_topic t
 CROSS JOIN LATERAL (
       SELECT coalesce(t.retain, %(default)s::interval) AS log,
              nullif(coalesce(t.wait_for_ingest, %(wait)s::interval), '0') AS wait,
              statement_timestamp() AS now) said
 CROSS JOIN LATERAL (
       SELECT ((said.now AT TIME ZONE 'UTC')::date - said.log)::date AS first,
              said.wait) kept
  LEFT JOIN LATERAL (
       SELECT min(p.read_to) AS read_to FROM pgqueue_ingest_position p
        WHERE p.topic_id = t.id AND p.read_at > said.now - said.log - said.wait
       ) ingested ON true
 ORDER BY t.name
"""

# Which of some topics have a message in a day: a look at its index for each.
PRESENT = """
SELECT topic.id FROM unnest(%(topics)s::int[]) topic(id)
 CROSS JOIN LATERAL (
       SELECT FROM {table} m WHERE m.topic_id = topic.id
        ORDER BY m.partition, m.id LIMIT 1) message
"""

# The last message that goes: a look at the end of each partition's index.
HIGHEST = f"""
SELECT max(message.id) FROM unnest(%(partitions)s::int[]) place(number)
 CROSS JOIN LATERAL (
       SELECT m.id FROM pgqueue_message m
        WHERE m.topic_id = %(topic)s AND {within("place.number")}
          AND m.published_at >= %(since)s AND m.published_at < %(before)s
        {FALLING} LIMIT 1) message
"""

# What a group has not read of what goes, by position. One that is halted for this
# already was told of what goes up to the last entry of its errors.
_POSITIONS = """
  FROM pgqueue_consumer_group g JOIN pgqueue_position p ON p.group_id = g.id
 CROSS JOIN LATERAL (
       SELECT greatest(p.position, CASE WHEN p.halted_for = 'retention' THEN
                       (p.errors -> -1 ->> 'last_id')::bigint END) AS id) told
"""
_UNREAD = f"""
  FROM pgqueue_message m
 WHERE m.topic_id = g.topic_id AND {within("p.partition", after="told.id")}
   AND m.published_at >= %(since)s AND m.published_at < %(before)s
   AND (g.payload_filter IS NULL OR m.payload @> g.payload_filter)
"""
BEHIND = f"""
SELECT p.id {_POSITIONS} CROSS JOIN LATERAL (SELECT {_UNREAD} {RISING} LIMIT 1) message
 WHERE g.topic_id = %(topic)s
"""
# Locks: row locks on the positions, in the order of their ids.
TAKE_POSITIONS = """
SELECT id FROM pgqueue_position WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR UPDATE
"""
LOST = f"""
SELECT p.id, g.name, g.task, p.partition, lost.* {_POSITIONS}
 CROSS JOIN LATERAL (
       SELECT count(*) AS messages, min(unread.id) AS first_id,
              max(unread.id) AS last_id, min(unread.published_at) AS first_at,
              max(unread.published_at) AS last_at
         FROM (SELECT m.id, m.published_at {_UNREAD}
                {RISING} LIMIT %(limit)s + 1) unread) lost
 WHERE p.id = ANY(%(ids)s::bigint[]) AND lost.messages > 0
 ORDER BY g.name, p.partition
"""
# The last one of them, where more are lost than are counted.
LAST_LOST = f"""
SELECT message.id, message.published_at {_POSITIONS}
 CROSS JOIN LATERAL (
       SELECT m.id, m.published_at {_UNREAD} {FALLING} LIMIT 1) message
 WHERE p.id = %(id)s
"""

# Locks: row locks on the positions, which the caller has. Their readers write nothing
# any more.
HALT = f"""
UPDATE pgqueue_position p
   SET halted_at = clock_timestamp(), halted_for = 'retention', fence = fence + 1,
       leased_by = NULL, leased_until = NULL,
       errors = CASE WHEN jsonb_array_length(p.errors) >= {ERRORS_MAX}
                     THEN p.errors - 1 ELSE coalesce(p.errors, '[]') END
                || (jsonb_build_object('kind', 'retention', 'at', clock_timestamp())
                    || halted.entry::jsonb)
  FROM unnest(%(ids)s::bigint[], %(entries)s::text[]) AS halted(id, entry)
 WHERE p.id = halted.id
"""
# Locks: a row lock on the topic until the caller's transaction ends, also where nothing
# is new: those who seek and begin groups wait for it, and it for them. Nobody who
# publishes has it.
REMOVE_TO = """
UPDATE pgqueue_topic SET removed_to = greatest(removed_to, %(highest)s)
 WHERE id = %(topic)s
"""

# Gives what refers to a message that goes the message itself. Of a slice by id, so that
# it needs no index and its cost is bounded: where the slice ended, how many refer, how
# many of them were written.
# Locks: row locks on what is written; SKIP LOCKED passes over what is being settled.
INLINE_JOBS, INLINE_DEAD_LETTERS = (
    f"""
WITH slice AS MATERIALIZED (
    SELECT id, message_id, args FROM {table} WHERE id > %(after)s
     ORDER BY id LIMIT %(limit)s
), referring AS MATERIALIZED (
    SELECT slice.id, place.path, message.value FROM slice
     CROSS JOIN LATERAL (
           SELECT CASE 'message' WHEN slice.args #>> '{{0,__pgqueue__}}'
                                 THEN '{{0,value}}'::text[]
                                 WHEN slice.args #>> '{{0,0,__pgqueue__}}'
                                 THEN '{{0,0,value}}'::text[] END) place(path)
     CROSS JOIN LATERAL (
           SELECT {WHOLE.format(topic="going.name")} AS value
             FROM pgqueue_message m
             JOIN unnest(%(topics)s::int[], %(names)s::text[],
                         %(befores)s::timestamptz[]) AS going(id, name, before)
               ON going.id = m.topic_id AND m.published_at < going.before
            WHERE m.id = slice.message_id
              AND m.published_at >= %(since)s AND m.published_at < %(before)s
            LIMIT 1) message
     WHERE slice.message_id <= %(highest)s
       AND jsonb_typeof(slice.args #> place.path) = 'array'
), free AS MATERIALIZED (
    SELECT id FROM {table} WHERE id = ANY(ARRAY(SELECT id FROM referring))
     FOR UPDATE SKIP LOCKED
), written AS (
    UPDATE {table} j SET args = jsonb_set(j.args, referring.path, referring.value)
      FROM referring JOIN free USING (id)
     WHERE j.id = referring.id
       AND jsonb_typeof(j.args #> referring.path) = 'array'
    RETURNING j.id
)
SELECT (SELECT max(id) FROM slice), (SELECT count(*) FROM referring),
       (SELECT count(*) FROM written)
"""
    for table in ("pgqueue_job", "pgqueue_dead_letter")
)

# Locks: row locks on one batch, which nobody else wants. By the index of the log: in
# the order of partition and id, from where the last batch ended.
DELETE = """
WITH gone AS (
    DELETE FROM {table} WHERE id = ANY(ARRAY(
        SELECT id FROM {table}
         WHERE topic_id = %(topic)s
           AND (partition, id) > (%(partition)s::smallint, %(after)s::bigint)
         ORDER BY partition, id LIMIT %(limit)s))
    RETURNING partition, id)
SELECT count(*) OVER (), partition, id FROM gone
 ORDER BY partition DESC, id DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Going:
    """A topic, and the days whose messages of it are to be removed."""

    topic_id: int
    topic: str
    # Those that have messages of it, oldest first.
    days: tuple[date, ...]

    @property
    def since(self) -> datetime:
        """When the first one of them began."""
        return _midnight(self.days[0])

    @property
    def before(self) -> datetime:
        """When the last one of them ended."""
        return _midnight(self.days[-1] + DAY)


class Wait(NamedTuple):
    """A topic of which days are old enough, and not ingested yet."""

    topic_id: int
    topic: str
    first_day: date


@dataclass(frozen=True, slots=True)
class Due:
    """What there is to remove, as it was at one moment."""

    going: tuple[Going, ...]
    # That go as a whole, each if no topic keeps it; and where they end.
    days: tuple[date, ...]
    end: date
    # The first day that each topic keeps; None: it keeps all.
    kept: Mapping[int, date | None]
    # No message that goes has a higher id.
    highest: int
    # Something was to go, and could not be removed yet: it was not closed, or somebody
    # may still publish into it.
    is_held: bool
    waits: Sequence[Wait]

    def keepers(self, day: date) -> list[int]:
        """Return the topics that keep their messages of *day*."""
        return [
            topic for topic, first in self.kept.items() if first is None or first <= day
        ]


class Slice(NamedTuple):
    """What inline_jobs() and inline_dead_letters() have looked at."""

    # The id where it ended; None: there was nothing.
    last_id: int | None
    # How many referred to a message that goes, and how many do not any more.
    referring: int
    written: int


class Deleted(NamedTuple):
    """One batch: where it ended."""

    rows: int
    partition: int = 0
    last_id: int = 0

    @property
    def is_full(self) -> bool:
        """Whether there may be more."""
        return self.rows >= DELETE_ROWS_MAX


def due(
    cursor: Cursor,
    *,
    default: timedelta | None,
    wait: timedelta | None = None,
    bytes_max: int | None = None,
    sizes: Sizes = NO_SIZES,
) -> Due:
    """
    Return what its topic keeps no longer, and can be removed.

    Args:
        cursor: In autocommit: each statement has to see what was before it.
        default: What topics that do not say keep; None: all.
        wait: For how long they wait for ingest then; None: not at all.
        bytes_max: What the log of all topics may have; None: any number.
        sizes: How large days are, and what of each is a topic's.
    """
    # First: what it says is true of every later snapshot.
    bounds = horizons(cursor)
    closed = dict(closed_days(cursor).closed)
    attached = LOG.attached(cursor)
    cursor.execute(TOPICS, {"default": default, "wait": wait})
    whole = first_within(sizes.days, bytes_max, closed)
    topics: list[tuple[int, str, date | None]] = []
    waits: list[Wait] = []
    for topic_id, name, by_age, most, by_wait, read_to in cursor.fetchall():
        by_size = first_within(sizes.of_topic(topic_id), most, closed)
        first = by_age
        if by_wait is not None:
            first = _ingested(attached, closed, by_age, by_wait, read_to)
        first = latest([first, whole, by_size])
        if by_wait is not None and first is not None and first < by_age:
            waits.append(Wait(topic_id, name, first))
        topics.append((topic_id, name, first))
    is_held = False
    wanted: dict[date, list[int]] = {}
    for topic_id, _name, first in topics:
        old = [day for day in attached if first is not None and day < first]
        free = _free(old, closed, bounds.of(topic_id))
        is_held = is_held or len(free) < len(old)
        for day in free:
            wanted.setdefault(day, []).append(topic_id)
    # A statement for each day, however many topics there are.
    found = [
        (day, topic_id)
        for day in sorted(wanted)
        for topic_id in present(cursor, wanted[day], day)
    ]
    days_of: dict[int, list[date]] = {}
    for day, topic_id in found:
        days_of.setdefault(topic_id, []).append(day)
    going = [
        Going(topic_id, name, tuple(days_of[topic_id]))
        for topic_id, name, _first in topics
        if topic_id in days_of
    ]
    kept = {topic_id: first for topic_id, _name, first in topics}
    first = first_kept(cursor, EMPTY_KEPT if default is None else default)
    end = max([first, *filter(None, kept.values())])
    old = [day for day in attached if day < end]
    free = _free(old, closed, min([bounds.highest, *bounds.held.values()]))
    highest = max((closed[each.days[-1]] for each in going), default=0)
    return Due(
        *(tuple(going), free, end, kept, highest),
        is_held=is_held or len(free) < len(old),
        waits=[
            wait for wait in waits if present(cursor, [wait.topic_id], wait.first_day)
        ],
    )


def is_kept(cursor: Cursor, topics: Sequence[int], day: date) -> bool:
    """Return whether one of some topics has a message in a day, attached or not."""
    return bool(present(cursor, topics, day))


def present(cursor: Cursor, topics: Sequence[int], day: date) -> list[int]:
    """Return which of some topics have a message in a day, attached or not."""
    if not topics:
        return []
    table = sql.Identifier(LOG.name_of(day))
    return column(cursor, sql.SQL(PRESENT).format(table=table), topics=list(topics))


def announce(cursor: Cursor, going: Going) -> list[Loss]:
    """
    Say that messages go, and halt the groups that have not read them.

    Args:
        cursor: Inside a transaction of READ COMMITTED, which the caller commits before
            anything is removed.
        going: What goes.

    Returns:
        What each group loses; what it was told before is left out.

    Raises:
        psycopg.errors.LockNotAvailable: Somebody has the topic, or a position, for
            longer than PATIENCE.
    """
    cursor.execute(log.PATIENCE, {"timeout": PATIENCE})
    with planned(cursor, Plans.IN_ORDER):
        return _announce(cursor, going)


def _announce(cursor: Cursor, going: Going) -> list[Loss]:
    topic = {"topic": going.topic_id, "since": going.since, "before": going.before}
    numbers = numbers_of(cursor, going.topic_id)
    cursor.execute(HIGHEST, {**topic, "partitions": numbers})
    (highest,) = one_row(cursor)
    if highest is None:
        return []
    # Before positions are looked at: from here on, none moves back unseen.
    cursor.execute(REMOVE_TO, {"topic": going.topic_id, "highest": highest})
    ids = column(cursor, BEHIND, **topic)
    if not ids:
        return []
    cursor.execute(TAKE_POSITIONS, {"ids": ids})
    lost = _lost(cursor, ids, going)
    if lost:
        entries = [
            loss_entry(loss, "it was read", "they were read") for _id, loss in lost
        ]
        cursor.execute(
            HALT, {"ids": [each for each, _loss in lost], "entries": entries}
        )
    return _by_group([loss for _id, loss in lost])


def inline_jobs(cursor: Cursor, due: Due, *, after: int) -> Slice:
    """
    Put messages that go into the jobs that refer to them, of one slice of all jobs.

    Args:
        cursor: An open cursor; the caller commits.
        due: What goes.
        after: The id where the slice before ended.
    """
    return _inline(cursor, INLINE_JOBS, due, after)


def inline_dead_letters(cursor: Cursor, due: Due, *, after: int) -> Slice:
    """Do as inline_jobs(), for dead letters."""
    return _inline(cursor, INLINE_DEAD_LETTERS, due, after)


def delete_batch(
    cursor: Cursor, topic_id: int, day: date, *, partition: int = -1, after: int = 0
) -> Deleted:
    """
    Delete one batch of a topic's messages of one day.

    Args:
        cursor: An open cursor; the caller commits.
        topic_id: Of the topic.
        day: Which.
        partition: Where the batch before ended.
        after: As partition.
    """
    cursor.execute(
        sql.SQL(DELETE).format(table=sql.Identifier(LOG.name_of(day))),
        {
            "topic": topic_id,
            "partition": partition,
            "after": after,
            "limit": DELETE_ROWS_MAX,
        },
    )
    return Deleted(*(cursor.fetchone() or (0,)))


def _ingested(
    attached: Sequence[date],
    closed: Mapping[date, int],
    by_age: date,
    by_wait: date,
    read_to: int,
) -> date:
    """
    Return the first day that a topic keeps which waits for ingest.

    Args:
        attached: The days that there are, oldest first.
        closed: Those that are closed, and the highest id in each.
        by_age: The first day that it keeps in any case.
        by_wait: The first one that it waits with.
        read_to: Up to which id its messages are ingested.
    """
    for day in attached:
        if by_wait <= day < by_age and not closed.get(day, read_to + 1) <= read_to:
            return day
    return by_age


def _free(
    days: Sequence[date], closed: Mapping[date, int], bound: int
) -> tuple[date, ...]:
    """Return the first of *days*, as long as nobody can add a message to them."""
    free: list[date] = []
    for day in days:
        if day not in closed or closed[day] > bound:
            break
        free.append(day)
    return tuple(free)


def _lost(cursor: Cursor, ids: Sequence[int], going: Going) -> list[tuple[int, Loss]]:
    """Return what each of these positions loses, by its id."""
    params = {"since": going.since, "before": going.before}
    cursor.execute(LOST, {**params, "ids": list(ids), "limit": LOST_MAX})
    found = []
    for position, group, task, partition, count, *rest in cursor.fetchall():
        first_id, last_id, first_at, last_at = rest
        if count > LOST_MAX:
            cursor.execute(LAST_LOST, {**params, "id": position})
            last_id, last_at = one_row(cursor)
        loss = Loss(
            *(going.topic, group, task, (partition,)),
            *(min(count, LOST_MAX), count <= LOST_MAX),
            *(first_id, last_id, first_at, last_at),
        )
        found.append((position, loss))
    return found


def _by_group(losses: Iterable[Loss]) -> list[Loss]:
    """Return one for each group."""
    groups: dict[str, Loss] = {}
    for loss in losses:
        first = groups.get(loss.group)
        groups[loss.group] = loss if first is None else _sum(first, loss)
    return list(groups.values())


def _sum(one: Loss, other: Loss) -> Loss:
    return one._replace(
        partitions=one.partitions + other.partitions,
        messages=one.messages + other.messages,
        is_exact=one.is_exact and other.is_exact,
        first_id=min(one.first_id, other.first_id),
        last_id=max(one.last_id, other.last_id),
        first_at=min(one.first_at, other.first_at),
        last_at=max(one.last_at, other.last_at),
    )


def _inline(cursor: Cursor, statement: str, due: Due, after: int) -> Slice:
    cursor.execute(
        statement,
        {
            "topics": [each.topic_id for each in due.going],
            "names": [each.topic for each in due.going],
            "befores": [each.before for each in due.going],
            "since": min(each.since for each in due.going),
            "before": max(each.before for each in due.going),
            "highest": due.highest,
            "after": after,
            "limit": INLINE_ROWS_MAX,
        },
    )
    return Slice(*one_row(cursor))


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
