"""
Publish: store messages in a topic's log, and a job for each matching subscription.

In the caller's transaction. Everything that can be wrong with a message was found
before, so that transaction stays usable.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from django_pgqueue.bounds import PUBLISH_TASK
from django_pgqueue.postgres.bulk import BULK_ROWS_MAX, Items, as_array, chunks
from django_pgqueue.postgres.cursor import Cursor, column, one_row

# The header that has the id by which a message for later could be cancelled; that of
# its moment is written by sql/schedule_messages.sql.
SCHEDULED_ID = "pgqueue.scheduled_id"

# Locks: one shared advisory lock for each transaction and topic, which no other
# publisher waits for; readers look at it (horizon.py). The first message of a topic
# that nobody has declared makes its row, and others of that topic wait until that
# transaction ends. A function, so that its plan is kept with the session:
# sql/store_messages.sql.
STORE = "SELECT ids, queues, jobs, has_groups FROM pgqueue_store_messages(%s, %s)"

# Locks: as STORE, which does the same for many. What it returns is JSON in a text.
STORE_ONE = "SELECT pgqueue_store_message(%s, %s, %s, %s)"

# Locks: none. Until the transaction ends.
ADMIT = "SELECT set_config('pgqueue.admits', '1', true)"

# Locks: none. A function, as that of other languages: sql/schedule_messages.sql. The
# time is given, so that tests can stop it.
STORE_LATER = "SELECT * FROM pgqueue_schedule_messages(%(items)s, clock_timestamp())"

# Messages that a job for later publishes together with its own, if they are due in its
# lane, and bytes of them, as they are stored.
LATER_ROWS_MAX = 500
LATER_BYTES_MAX = 4_194_304

# The job's own message, and with_others those that wait behind it. None: somebody is
# cancelling it, or has done so.
# Locks: those of pgqueue_begin_publish(); and row locks on the job and on what it
# publishes besides, until the caller's transaction ends. SKIP LOCKED: what is being
# cancelled or changed is passed over.
PUBLISH_LATER = f"""
WITH own AS MATERIALIZED (
    SELECT id, lane, args FROM pgqueue_job WHERE id = %(id)s FOR UPDATE SKIP LOCKED),
behind AS MATERIALIZED (
    SELECT j.id, j.lane_due_at, j.args
      FROM own JOIN pgqueue_job j ON j.lane = own.lane
     WHERE %(with_others)s AND j.task = '{PUBLISH_TASK}' AND j.visible_at IS NULL
       AND j.lane_capacity IS NOT NULL AND j.lane_due_at <= clock_timestamp()
     ORDER BY j.lane, j.lane_due_at LIMIT {LATER_ROWS_MAX} FOR UPDATE OF j SKIP LOCKED),
due AS MATERIALIZED (
    SELECT id, lane_due_at, args FROM (
        SELECT *, sum(pg_column_size(args)) OVER (ORDER BY lane_due_at, id) AS bytes
          FROM behind) sized
     WHERE bytes <= {LATER_BYTES_MAX}
     UNION ALL SELECT id, '-infinity', args FROM own),
gone AS (
    DELETE FROM pgqueue_job
     WHERE id = ANY(ARRAY(SELECT id FROM due WHERE lane_due_at > '-infinity'))),
items AS (
    SELECT split_part(min(message ->> 'name'), '.', 1) AS topic,
           jsonb_agg(jsonb_build_array(
               message -> 'name', message -> 'key', message -> 'payload',
               message -> 'headers' || jsonb_build_object('{SCHEDULED_ID}', -id))
               ORDER BY lane_due_at, id) AS items
      FROM (SELECT id, lane_due_at, args #> '{{0,value}}' AS message FROM due) each
    HAVING count(*) > 0)
SELECT s.ids, s.queues, s.jobs, s.has_groups, items.topic
  FROM items, pgqueue_store_messages(items.topic, items.items) s
"""

# Locks: a row lock on what it deletes, until the caller's transaction ends: it waits
# for whoever publishes it.
CANCEL = f"""
DELETE FROM pgqueue_job WHERE id = %(id)s AND task = '{PUBLISH_TASK}'
RETURNING lane, visible_at IS NOT NULL
"""

# Readers of a topic are told to look, as workers are of a queue.
HINT = "!topic "

# What stands before a subscription in the place of the queues; in no queue's name is
# there a "!".
FULL = "!full"

# Locks: none. For tests, whose jobs run at once: it reads the live jobs.
JOBS = "SELECT id FROM pgqueue_job WHERE message_id = ANY(%(ids)s) ORDER BY id"


class Stored(NamedTuple):
    """What one call has stored."""

    ids: list[int]
    # That got jobs; of jobs that wait in a lane, what is notified in their place.
    queues: set[str]
    jobs: int
    # Whether the topic has consumer groups, which are to be woken.
    has_groups: bool


class Refused(NamedTuple):
    """The subscription for whose sake nothing was stored: it is full."""

    pattern: str
    queue: str
    task: str
    depth: int
    depth_max: int


class SubscriptionFull(Exception):
    """Nothing was stored, since a subscription is full; the transaction goes on."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused)
        self.refused = refused


def publish(
    cursor: Cursor, topic: str, items: Sequence[Items], *, is_admitted: bool = False
) -> Stored:
    """
    Store messages of one topic, in one statement per 5,000, and return their ids.

    The caller opens the transaction that makes several statements all or nothing.

    Args:
        cursor: Django's or psycopg's; the caller commits.
        topic: Its name; a topic that is not known is made.
        items: Each message as a JSON array: name, key or null, payload, headers.
        is_admitted: Whether subscriptions that are full take them all the same; that
            then holds until the transaction ends.

    Raises:
        SubscriptionFull: One refuses them. What earlier statements have stored is for
            the caller to roll back.
    """
    if is_admitted:
        cursor.execute(ADMIT)
    ids: list[int] = []
    queues: set[str] = set()
    jobs, has_groups = 0, False
    for chunk in chunks(items, BULK_ROWS_MAX):
        cursor.execute(STORE, (topic, as_array(chunk)))
        stored, woken, count, has_groups = one_row(cursor)
        _check(woken)
        ids.extend(stored)
        queues.update(woken)
        jobs += count
    return Stored(ids, queues, jobs, has_groups)


def publish_one(
    cursor: Cursor, name: str, key: str | None, payload: str, headers: str
) -> Stored:
    """
    Store one message, in one statement.

    Args:
        cursor: As of publish().
        name: Of the message; the topic is its first word, and made if it is not known.
        key: None: it has none.
        payload: JSON text.
        headers: JSON text of an object.

    Raises:
        SubscriptionFull: One refuses it.
    """
    cursor.execute(STORE_ONE, (name, key, payload, headers))
    message_id, has_groups, *made = json.loads(one_row(cursor)[0])
    jobs, queues = made or (0, ())
    _check(queues)
    return Stored([message_id], set(queues), jobs, has_groups)


def store_later(cursor: Cursor, items: Sequence[Items]) -> list[int]:
    """
    Store messages that are published later, in one statement per 5,000.

    The caller opens the transaction that makes several statements all or nothing.

    Args:
        cursor: Django's or psycopg's; the caller commits.
        items: As sql/schedule_messages.sql takes them; one at least.

    Returns:
        Their ids, below zero.
    """
    ids: list[int] = []
    for chunk in chunks(items, BULK_ROWS_MAX):
        cursor.execute(STORE_LATER, {"items": as_array(chunk)})
        ids.extend(one_row(cursor)[0])
    return ids


def publish_later(
    cursor: Cursor, job_id: int, *, with_others: bool
) -> tuple[str, Stored] | None:
    """
    Publish the message of a job for later; return its topic, and what was stored.

    Args:
        cursor: In the transaction that ends the job.
        job_id: Of the job.
        with_others: Whether messages of the topic that are due behind it are published
            with it; their jobs are deleted.

    Returns:
        None: the message is being cancelled.
    """
    # They were accepted when they were stored: a full backlog takes them.
    cursor.execute(ADMIT)
    cursor.execute(PUBLISH_LATER, {"id": job_id, "with_others": with_others})
    row = cursor.fetchone()
    if row is None:
        return None
    ids, queues, jobs, has_groups, topic = row
    return topic, Stored(ids, set(queues), jobs, has_groups)


def cancel_later(cursor: Cursor, message_id: int) -> tuple[str, bool] | None:
    """
    Delete the job of a message for later; return its lane, and whether it held a place.

    Args:
        cursor: The caller commits.
        message_id: Below zero.

    Returns:
        None: it was published or cancelled before.
    """
    cursor.execute(CANCEL, {"id": -message_id})
    return cursor.fetchone()


def _check(queues: Sequence[str]) -> None:
    """Raise SubscriptionFull if these say so."""
    if queues and queues[0] == FULL:
        pattern, queue, task, depth, depth_max = queues[1:]
        raise SubscriptionFull(
            Refused(pattern, queue, task, int(depth), int(depth_max))
        )


def jobs_of(cursor: Cursor, ids: Sequence[int]) -> list[int]:
    """Return the ids of the live jobs that these messages have."""
    return column(cursor, JOBS, ids=list(ids))
