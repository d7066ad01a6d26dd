"""
Publish: store messages in a topic's log, and a job for each matching subscription.

In the caller's transaction. Everything that can be wrong with a message was found
before, so that transaction stays usable.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from django_pgqueue.postgres.bulk import BULK_ROWS_MAX, Items, as_array, chunks
from django_pgqueue.postgres.cursor import Cursor, one_row

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


def _check(queues: Sequence[str]) -> None:
    """Raise SubscriptionFull if these say so."""
    if queues and queues[0] == FULL:
        pattern, queue, task, depth, depth_max = queues[1:]
        raise SubscriptionFull(
            Refused(pattern, queue, task, int(depth), int(depth_max))
        )


def jobs_of(cursor: Cursor, ids: Sequence[int]) -> list[int]:
    """Return the ids of the live jobs that these messages have."""
    cursor.execute(JOBS, {"ids": list(ids)})
    return [job_id for (job_id,) in cursor.fetchall()]
