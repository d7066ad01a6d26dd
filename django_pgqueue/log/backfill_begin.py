"""
Begin a back-fill: history for a subscription, or a group, that began with what came.

What retention has removed from the log comes from files, and what it has left from the
log itself. Both meet at the id up to which it has removed, which cannot move while the
caller's transaction holds the topic: that makes the jobs of the former, and lets the
latter begin. So each message has one job, whoever dies in between.

What stands in files says nothing of epochs. It need not: where all that was removed was
published before the subscription was made, none of it has a job of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django_pgqueue.exceptions import MessagesLost, TopicError
from django_pgqueue.log import groups
from django_pgqueue.log.seek import seek
from django_pgqueue.log.start import EARLIEST, LATEST
from django_pgqueue.postgres.cursor import Cursor, one_row

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
    cursor.execute(READ_TO, {"topic": topic, "target": target})
    row = cursor.fetchone()
    if row is None:
        raise TopicError(f"There is no topic {topic!r}.")
    return History(*row)


def made_at(cursor: Cursor, topic: str, receiver: Mapping[str, Any]) -> datetime:
    """
    Return when a receiver was made, by which a later one of its name is another.

    Args:
        cursor: Of any database of the log.
        topic: Whose messages.
        receiver: As receivers.find() returned it.
    """
    cursor.execute(MADE_AT, {**receiver, "topic": topic})
    found: datetime = one_row(cursor)[0]
    return found


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
