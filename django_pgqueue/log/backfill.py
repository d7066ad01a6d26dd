"""
Back-fill: jobs for messages that were published before a subscription was made.

A message stores the epoch that its publishing statement saw, and subscribing raises the
epoch: what has an older one has no job of this subscription, whenever it commits, and
what has its epoch or a newer one has. So the back-fill takes the older epochs alone,
and meets the live flow with each message once.

It is over when nothing with an older epoch can come any more: no session has a
snapshot that may be from before the subscription, and all that was drawn until then was
looked at. Not the oldest running transaction counts but the oldest snapshot: one in
REPEATABLE READ that has only read so far has no number yet, and may publish an hour
later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django_pgqueue.exceptions import MessagesLost, TopicError
from django_pgqueue.log import groups
from django_pgqueue.log.closed_days import Days
from django_pgqueue.log.horizon import Horizons, has_older
from django_pgqueue.log.seek import seek
from django_pgqueue.log.start import EARLIEST, LATEST
from django_pgqueue.postgres.cursor import Cursor, one_row, record, rows, value

# Of one transaction: jobs that it makes, and messages that it looks at.
BATCH_JOBS, BATCH_MESSAGES = 1_000, 5_000

# Messages of which epochs have no job yet. The numbers of missed are where such ones
# begin and end by turns: an odd number of them is not above the epoch of a message that
# has none.
MISSED = "width_bucket(m.epoch, coalesce(s.missed, ARRAY[0, s.since_epoch])) %% 2 = 1"

# Locks: none.
OPEN = """
SELECT s.id, s.queue, s.pattern, t.id, s.topic, s.start, s.backfill_position,
       s.backfill_xid, s.held_at IS NOT NULL, s.full_at IS NOT NULL,
       s.backlog_max - coalesce(s.backlog, 0)
  FROM pgqueue_subscription s LEFT JOIN pgqueue_topic t ON t.name = s.topic
 WHERE s.backfill_position IS NOT NULL AND s.disabled_at IS NULL
 ORDER BY s.id
"""

# Locks: a share lock on the rows of the topics until the caller's transaction ends:
# retention writes messages into the jobs that refer to them before it removes them, and
# must not overlook those that are made here. In the order in which a worker that starts
# declares them, or two would wait for each other.
HOLD_TOPICS = """
SELECT t.id FROM pgqueue_topic t
 WHERE %(topic)s::text IS NULL OR t.name = %(topic)s::text
 ORDER BY t.name COLLATE "C" FOR SHARE
"""

# Locks: none. Up to where the next messages go, of all topics; through the key.
EDGE = """
SELECT count(*), max(seen.id)
  FROM (SELECT m.id FROM pgqueue_message m
         WHERE m.id > %(position)s AND m.id <= %(bound)s
           AND m.published_at >= %(since)s::timestamptz
         ORDER BY m.id LIMIT %(messages)s) seen
"""

# What a job gets as its argument: the message stays in the log.
MESSAGE = """jsonb_build_object(
               '__pgqueue__', 'message',
               'value', jsonb_build_array(found.id, found.published_at))"""

# A message as a whole, for a job that finds none in the log.
WHOLE = """jsonb_build_object(
               'id', m.id, 'topic', {topic}, 'name', m.name, 'key', m.key,
               'payload', m.payload, 'headers', m.headers,
               'published_at', m.published_at, 'partition', m.partition)"""

# Whether *mine* wants a message: a subscription, or what is read as one; and the lane
# of its job.
WANTED = """(s.pattern = s.topic OR pgqueue_pattern_selects(s.pattern, m.name))
       AND (s.payload_filter IS NULL OR m.payload @> s.payload_filter)"""
LANE = """CASE WHEN s.lane_by IS NOT NULL THEN pgqueue_message_lane(
               s.task, s.lane_by, m.name, m.key, m.payload) END"""

# What of a message concerns its jobs, where *mine* wants it. The topic is asked for so
# that no plan walks over the index of its log, where ids of one partition stand
# together.
FOUND = f"""
    SELECT m.id, m.published_at, m.headers, {{payload}} AS payload, {LANE} AS lane,
           NULL::timestamptz AS due_at
      FROM mine s, pgqueue_message m
     WHERE m.id > %(position)s AND m.id <= %(last)s
       AND m.published_at >= %(since)s::timestamptz
       AND {{condition}}
       AND {WANTED}
     ORDER BY m.id LIMIT %(jobs)s
"""

# Of a back-fill: what has no job of the subscription yet.
OLDER = f"""{MISSED}
       AND (s.topic IS NULL OR split_part(m.name, '.', 1) = s.topic)
       AND m.id > (SELECT t.removed_to FROM pgqueue_topic t WHERE t.id = m.topic_id)"""

# The jobs of what was found, as fan-out makes them, in the order of the messages.
JOBS = """
    INSERT INTO pgqueue_job
           (queue, task, args, headers, priority, max_attempts, run_after, message_id,
            lane, lane_capacity, lane_spacing, lane_burst, lane_policy)
    SELECT s.queue, s.task, {args}, found.headers || {headers}, s.priority,
           s.max_attempts, found.due_at, {message_id},
           found.lane, s.lane_capacity, s.lane_spacing, s.lane_burst, s.lane_policy
      FROM mine s, found
     ORDER BY found.id
    RETURNING lane, lane_policy
"""

# Of jobs that refer to their message.
REFERRING = {"args": f"jsonb_build_array({MESSAGE})", "message_id": "found.id"}

# How many jobs were made and how many of them in lanes, and up to which id all is done.
REACHED = """
    SELECT count(*) AS jobs, count(lane) AS in_lanes,
           count(lane) FILTER (WHERE lane_policy = 'fair') AS in_turn,
           CASE WHEN count(*) = %(jobs)s THEN (SELECT max(found.id) FROM found)
                ELSE %(to)s END AS id
      FROM job
"""

# Locks: a row lock on the subscription; a second leader that has read the same position
# waits for it, and then finds another one. The jobs and the position are of one commit.
FILL = f"""
WITH mine AS MATERIALIZED (
    SELECT s.* FROM pgqueue_subscription s
     WHERE s.id = %(id)s AND s.backfill_position = %(position)s
       AND s.disabled_at IS NULL
       FOR UPDATE
), found AS MATERIALIZED ({FOUND.format(condition=OLDER, payload="NULL")}),
job AS ({JOBS.format(**REFERRING, headers="s.headers")}),
reached AS ({REACHED})
UPDATE pgqueue_subscription s
   SET backfill_position = CASE WHEN reached.id < coalesce(%(final)s, reached.id + 1)
                                THEN reached.id END,
       backfill_xid = CASE WHEN reached.id < coalesce(%(final)s, reached.id + 1)
                           THEN s.backfill_xid END,
       missed = CASE WHEN reached.id < coalesce(%(final)s, reached.id + 1)
                     THEN s.missed END,
       backlog = s.backlog + reached.jobs
  FROM mine, reached
 WHERE s.id = mine.id
RETURNING reached.jobs, reached.id, s.backfill_position IS NULL, reached.in_lanes,
          reached.in_turn
"""


@dataclass(frozen=True, slots=True)
class OpenBackfill:
    """A subscription that has not got all yet with which it was to begin."""

    id: int
    queue: str
    pattern: str
    # None: of any topic, or of one that nobody has made yet.
    topic_id: int | None
    topic: str | None
    start: str
    position: int
    xid: int | None
    # It makes no jobs of what is published: all of them are the back-fill's.
    is_held: bool
    is_full: bool
    # For how many more jobs there is room; None: for any number.
    room: int | None

    @property
    def jobs_max(self) -> int:
        """How many jobs the next batch may make."""
        if self.is_full:
            return 0
        return BATCH_JOBS if self.room is None else min(max(self.room, 0), BATCH_JOBS)

    def bound(self, horizons: Horizons) -> int:
        """Return up to which id its messages can be read."""
        if self.topic_id is not None:
            return horizons.of(self.topic_id)
        # Also a topic whose row is not committed yet has a lock.
        return min([horizons.highest, *horizons.held.values()])


class Filled(NamedTuple):
    """What one batch has done."""

    jobs: int
    # Up to which id all was looked at.
    position: int
    is_over: bool
    # Of the jobs, those that wait in a lane.
    in_lanes: int
    # Of these, those in lanes that take turns.
    in_turn: int


def find_open(cursor: Cursor) -> list[OpenBackfill]:
    """Return the subscriptions that wait for older messages, but for disabled ones."""
    return rows(OpenBackfill, cursor, OPEN)


def has_older_snapshot(cursor: Cursor, backfill: OpenBackfill) -> bool:
    """Whether a statement may still publish that does not see the subscription."""
    if backfill.xid is None:
        return False
    return has_older(cursor, backfill.xid)


def fill(
    cursor: Cursor, backfill: OpenBackfill, *, bound: int, final: int | None, days: Days
) -> Filled | None:
    """
    Make the jobs of the next messages; None: another leader was first.

    Args:
        cursor: psycopg's, in READ COMMITTED; the caller has a transaction open, which
            it has begun after it asked for the horizon.
        backfill: As find_open() has returned it.
        bound: Up to which id its messages can be read.
        final: The highest id that was drawn when no older snapshot was left: with it
            the back-fill is over. None: one is left.
        days: The days of the log that are closed.
    """
    position = backfill.position
    is_any = backfill.start in (EARLIEST, LATEST)
    since = days.since(position) if is_any else backfill.start
    params: dict[str, Any] = {
        "id": backfill.id,
        "position": position,
        "bound": bound,
        "since": since,
        "topic": backfill.topic,
        "final": final,
        "jobs": backfill.jobs_max,
        "messages": BATCH_MESSAGES,
    }
    cursor.execute(HOLD_TOPICS, params)
    cursor.execute(EDGE, params)
    seen, last = one_row(cursor)
    to = last if seen == BATCH_MESSAGES else max(bound, position)
    return record(Filled, cursor, FILL, **params, last=to, to=to)


# Backfill begin -----------------------------------------------------------------------
# Begin a back-fill: history for a subscription, or a group, that began with what came.
#
# What retention has removed from the log comes from files, and what it has left from
# the log itself. Both meet at the id up to which it has removed, which cannot move
# while the caller's transaction holds the topic: that makes the jobs of the former,
# and lets the latter begin. So each message has one job, whoever dies in between.
#
# What stands in files says nothing of epochs. It need not: where all that was removed
# was published before the subscription was made, none of it has a job of it.


# Locks: a row lock on the subscription, until the caller's transaction ends. Those who
# have it hold the topic before.
SUBSCRIPTION = """
SELECT s.id, s.topic, s.created_at, s.start,
       s.backfill_position IS NOT NULL OR s.missed IS NOT NULL OR s.held_at IS NOT NULL
  FROM pgqueue_subscription s
 WHERE s.queue = %(queue)s AND s.pattern = %(name)s AND s.task = %(task)s
   AND s.disabled_at IS NULL
   FOR UPDATE
"""
# Locks: as SUBSCRIPTION. What has an older epoch and is still in the log is the
# leader's from now on: log/backfill.py.
BEGIN = """
UPDATE pgqueue_subscription
   SET start = %(start)s, backfill_position = %(position)s,
       backfill_xid = pg_current_xact_id()::text::bigint
 WHERE id = %(id)s
"""

# Locks: row locks on the positions, in the order of their ids, as a seek has.
GROUP = """
SELECT g.id, bool_or(p.moved_at IS NOT NULL)
  FROM pgqueue_consumer_group g
  JOIN (SELECT p.group_id, p.moved_at FROM pgqueue_position p
         WHERE p.group_id = (
               SELECT g.id FROM pgqueue_consumer_group g
                WHERE g.name = %(name)s AND g.topic_id = %(topic_id)s)
         ORDER BY p.id FOR UPDATE) p ON p.group_id = g.id
 GROUP BY g.id
"""

# What was written by the pipeline job ingest, and up to which id. Locks: none.
READ_TO = """
SELECT t.removed_to, p.read_to
  FROM pgqueue_topic t
  LEFT JOIN pgqueue_ingest_position p
         ON p.topic_id = t.id AND p.target = %(target)s
 WHERE t.name = %(topic)s
"""


# When a receiver was made. Locks: none.
MADE_AT = """
SELECT s.created_at FROM pgqueue_subscription s
 WHERE %(kind)s::text = 'subscription' AND s.queue = %(queue)s
   AND s.pattern = %(name)s AND s.task = %(task)s
UNION ALL
SELECT g.created_at FROM pgqueue_consumer_group g
 WHERE %(kind)s::text = 'group' AND g.name = %(name)s
   AND g.topic_id = (SELECT t.id FROM pgqueue_topic t WHERE t.name = %(topic)s)
"""


class History(NamedTuple):
    """What of a topic is in its log, and in files."""

    # Retention has removed what is up to here.
    removed_to: int
    # Files have all up to here; None: nobody knows.
    read_to: int | None


def history(cursor: Cursor, topic: str, target: str) -> History:
    """
    Return where the history of a topic is.

    Args:
        cursor: On the primary.
        topic: Its name.
        target: Where the pipeline job ingest has written it; "": nowhere.

    Raises:
        TopicError: There is no such topic.
    """
    found = record(History, cursor, READ_TO, topic=topic, target=target)
    if found is None:
        raise TopicError(f"There is no topic {topic!r}.")
    return found


def made_at(cursor: Cursor, topic: str, receiver: Mapping[str, Any]) -> datetime:
    """
    Return when a receiver was made, by which a later one of its name is another.

    Args:
        cursor: Of any database of the log.
        topic: Whose messages.
        receiver: As receivers.find() returned it.
    """
    moment: datetime = value(cursor, MADE_AT, **receiver, topic=topic)
    return moment


def begin(
    cursor: Cursor,
    topic: str,
    receiver: Mapping[str, Any],
    *,
    start: str,
    removed_to: int,
) -> datetime | None:
    """
    Let what the log has left begin.

    The caller has its transaction make jobs of what files have, up to *removed_to*.

    Args:
        cursor: In READ COMMITTED, in a transaction that the caller commits.
        topic: Whose history.
        receiver: As replay.Range takes it: a subscription or a group.
        start: "earliest", or a moment in ISO 8601 with its offset.
        removed_to: As history() returned it.

    Returns:
        When a subscription was made: what was published then or later may have had its
        job already, and files do not say. None: of a group, all may come from files.

    Raises:
        TopicError: The receiver is gone, began with more than what came, or has had
            history; or retention has removed more since.
    """
    row = groups.topic_of(cursor, topic, makes=False)
    if row.removed_to != removed_to:
        raise TopicError(
            f"Retention has removed messages of the topic {topic!r} up to the id "
            f"{row.removed_to:,} meanwhile. Nothing was done; run it again."
        )
    if receiver["kind"] == "group":
        _begin_group(cursor, topic, row.id, receiver["name"], start)
        return None
    return _begin_subscription(cursor, topic, receiver, start, removed_to)


def _begin_subscription(
    cursor: Cursor, topic: str, receiver: Mapping[str, Any], start: str, position: int
) -> datetime:
    cursor.execute(SUBSCRIPTION, receiver)
    found = cursor.fetchone()
    said = f"The subscription {receiver['name']} → {receiver['queue']}"
    if found is None:
        raise TopicError(f"{said} is not there any more, or it is disabled.")
    subscription, of_topic, created_at, began, is_filling = found
    if of_topic != topic:
        raise TopicError(
            f"{said} is of any topic, and there is one boundary for each: replay the "
            f"history of {topic!r} to it with the pipeline job replay."
        )
    if began != LATEST or is_filling:
        what = "is being filled" if is_filling else f"began with {began}"
        raise TopicError(
            f"{said} {what}, so it has got jobs for what was published before it was "
            f"made. A back-fill is for one that is declared with start='latest', once."
        )
    cursor.execute(BEGIN, {"id": subscription, "start": start, "position": position})
    moment: datetime = created_at
    return moment


def _begin_group(
    cursor: Cursor, topic: str, topic_id: int, name: str, start: str
) -> None:
    cursor.execute(GROUP, {"name": name, "topic_id": topic_id})
    found = cursor.fetchone()
    if found is None:
        raise TopicError(f"There is no consumer group {topic}/{name}.")
    group, has_read = found
    if has_read:
        raise TopicError(
            f"The group {topic}/{name} has begun to read, and would read that again. "
            f"Pause it when it is declared, fill it, and resume it; or replay the "
            f"history to it with the pipeline job replay."
        )
    try:
        seek(cursor, group, start)
    except MessagesLost:
        # What is before that is in files.
        seek(cursor, group, EARLIEST)
