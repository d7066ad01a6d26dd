"""
Scheduled: messages that are published later.

They wait in a table of their own until their moment, and can be cancelled so long. Then
one statement moves them into the logs of their topics: no snapshot ever shows one twice
or not at all, and what dies in the midst of it has moved nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django_pgqueue.log import publish as storage
from django_pgqueue.postgres.bulk import BULK_ROWS_MAX, Items, as_array, chunks
from django_pgqueue.postgres.cursor import Cursor, one_row

# Headers that a message has got by its moment: which that was, and the id that
# publish() has returned for it.
RUN_AFTER, SCHEDULED_ID = "pgqueue.run_after", "pgqueue.scheduled_id"

# Who publishes what is due, and issues ticks, is told to look; it looks so often
# without that. The function pgqueue_publish() has these, too. In no queue's name is
# there a "!".
HINT = "!schedules"
LOOK_SECONDS = 5.0

# Messages that one statement publishes, and bytes of them, as they are stored.
PUBLISH_ROWS_MAX = 500
PUBLISH_BYTES_MAX = 4_194_304

# How long a message that cannot be published waits for its next try, at first.
RETRY = timedelta(seconds=1)
# How often that is doubled.
DOUBLINGS_MAX = 6

# How long publishing may wait for somebody's lock; schedules wait for it, too.
LOCK_SECONDS = 2

# Locks: none; a function, as that of other languages: sql/schedule_messages.sql. The
# time is given, so that tests can stop it.
STORE = """
SELECT ids, seconds FROM pgqueue_schedule_messages(%(items)s, clock_timestamp())
"""

# Locks: none. The first entry of the index pgqueue_scheduled_due, in seconds from now.
NEXT = """
SELECT extract(epoch FROM due_at - clock_timestamp())::float8
  FROM pgqueue_scheduled_message ORDER BY due_at, id DESC LIMIT 1
"""

# Locks: a row lock, for the statement. As NEXT, of those that nobody has locked.
NEXT_FREE = f"{NEXT.rstrip()} FOR UPDATE SKIP LOCKED"

# Locks: a row lock on one that has been due for so long, for the statement: whoever
# leads is away. What somebody cancels, and has not committed, says nothing about that.
OVERDUE = """
SELECT EXISTS (
       SELECT FROM pgqueue_scheduled_message
        WHERE due_at < statement_timestamp() - %(late)s::interval
        ORDER BY due_at, id DESC LIMIT 1 FOR UPDATE SKIP LOCKED)
"""

# Locks: none. Until the caller's transaction ends: how long others are waited for; and
# rows are found along indexes, also before there are statistics.
PREPARE = """
SELECT set_config('lock_timeout', %(patience)s, true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)
"""

# Locks: row locks until the caller's transaction ends, and none on what somebody else
# publishes or cancels, which it passes over. The floor is the last moment of the batch
# before, so that this walks over none of the rows that it has left dead.
DUE = """
SELECT id, topic, due_at, pg_column_size(payload) + pg_column_size(headers)
  FROM pgqueue_scheduled_message
 WHERE due_at >= coalesce(%(floor)s::timestamptz, '-infinity')
   AND due_at <= statement_timestamp()
 ORDER BY due_at, id DESC LIMIT %(limit)s FOR UPDATE SKIP LOCKED
"""

# Locks: row locks on what it moves, which the caller has already; those of
# pgqueue_begin_publish() for each topic, in the order of their names, as whoever
# publishes to several. Of one topic, ids rise in the order of the moments.
PUBLISH = f"""
WITH gone AS MATERIALIZED (
    DELETE FROM pgqueue_scheduled_message WHERE id = ANY(%(ids)s::bigint[])
    RETURNING id, topic, name, key, payload, headers, run_after
), by_topic AS MATERIALIZED (
    SELECT topic, jsonb_agg(jsonb_build_array(
               name, key, payload, headers || jsonb_build_object(
                   '{RUN_AFTER}', to_char(run_after AT TIME ZONE 'UTC',
                                          'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'),
                   '{SCHEDULED_ID}', id))
               ORDER BY run_after, id DESC) AS items
      FROM gone GROUP BY topic ORDER BY topic
)
SELECT t.topic, coalesce(s.ids, '{{}}'), s.queues, s.jobs, s.has_groups,
       jsonb_array_length(t.items)
  FROM by_topic t CROSS JOIN LATERAL pgqueue_store_messages(t.topic, t.items) s
"""

# Locks: row locks on those that nobody has locked, for the statement. One after the
# other, so that they keep their order.
PUT_OFF = """
WITH taken AS MATERIALIZED (
    SELECT id, row_number() OVER (ORDER BY due_at, id DESC) AS place
      FROM (SELECT id, due_at FROM pgqueue_scheduled_message
             WHERE id = ANY(%(ids)s::bigint[])
               FOR UPDATE SKIP LOCKED) free)
UPDATE pgqueue_scheduled_message m
   SET failures = least(m.failures + 1, 32767), error = %(error)s,
       due_at = clock_timestamp()
                + %(delay)s::interval * 2 ^ least(m.failures, %(doublings)s)
                + taken.place * interval '1 microsecond'
  FROM taken WHERE m.id = taken.id
"""

# Locks: row locks on what it deletes, until the caller's transaction ends: it waits for
# whoever publishes them, and they are gone then.
CANCEL = """
DELETE FROM pgqueue_scheduled_message WHERE id = ANY(%(ids)s::bigint[]) RETURNING id
"""


class Refused(Exception):
    """A topic takes no messages at present."""


class Waits(NamedTuple):
    """What one call has stored."""

    ids: list[int]  # Below zero.
    seconds: float  # Until the first of them is due.


class Due(NamedTuple):
    """A message that is due."""

    id: int
    topic: str
    due_at: datetime
    size: int  # In bytes, as it is stored.


class Published(NamedTuple):
    """Messages of one topic that one statement has published."""

    topic: str
    ids: list[int]  # In the log.
    queues: list[str]
    jobs: int
    has_groups: bool


def schedule(cursor: Cursor, items: Sequence[Items]) -> Waits:
    """
    Store messages that are published later, in one statement per 5,000.

    The caller opens the transaction that makes several statements all or nothing.

    Args:
        cursor: Django's or psycopg's; the caller commits.
        items: As sql/schedule_messages.sql takes them; one at least.
    """
    ids: list[int] = []
    seconds: list[float] = []
    for chunk in chunks(items, BULK_ROWS_MAX):
        cursor.execute(STORE, {"items": as_array(chunk)})
        stored, until = one_row(cursor)
        ids.extend(stored)
        seconds.append(until)
    return Waits(ids, min(seconds))


def until_next(cursor: Cursor, *, free: bool = False) -> float | None:
    """
    Return in how many seconds one is due; 0 or less: now; None: none waits.

    Args:
        cursor: An open cursor.
        free: Whether only those count that nobody has locked.
    """
    cursor.execute(NEXT_FREE if free else NEXT)
    row = cursor.fetchone()
    return None if row is None else float(row[0])


def is_overdue(cursor: Cursor, late: timedelta) -> bool:
    """Return whether one has been due for longer than *late*."""
    cursor.execute(OVERDUE, {"late": late})
    return bool(one_row(cursor)[0])


def prepare(cursor: Cursor) -> None:
    """Let this transaction, which publishes, wait for no lock for long."""
    cursor.execute(PREPARE, {"patience": f"{LOCK_SECONDS}s"})


def due(cursor: Cursor, *, floor: datetime | None = None) -> list[Due]:
    """
    Lock the first messages that are due and that nobody has locked; return a batch.

    Args:
        cursor: In a transaction, after prepare() where there may be many.
        floor: What was due before is not looked for; None: all.
    """
    cursor.execute(DUE, {"floor": floor, "limit": PUBLISH_ROWS_MAX})
    batch: list[Due] = []
    size = 0
    for row in cursor.fetchall():
        found = Due(*row)
        size += found.size
        if batch and size > PUBLISH_BYTES_MAX:
            break
        batch.append(found)
    return batch


def publish(cursor: Cursor, ids: Sequence[int]) -> list[Published]:
    """
    Publish scheduled messages, in the order of their moments; return them by topic.

    Args:
        cursor: In the transaction in which they were found due; the caller commits, and
            wakes readers and workers.
        ids: Of the messages; those that have gone are passed over.

    Raises:
        Refused: A topic has not taken them, so that they have to stay: roll back.
    """
    # They were accepted when they were stored: a full backlog takes them.
    cursor.execute(storage.ADMIT)
    cursor.execute(PUBLISH, {"ids": list(ids)})
    published = []
    for *row, count in cursor.fetchall():
        found = Published(*row)
        if len(found.ids) != count:
            raise Refused(f"its log took {len(found.ids)} of {count}: {found.queues}")
        published.append(found)
    return published


def put_off(cursor: Cursor, ids: Sequence[int], error: str) -> None:
    """
    Let messages wait that could not be published, twice as long each time, up to 64 s.

    Args:
        cursor: In a transaction, after prepare(); the caller commits.
        ids: Of the messages.
        error: Why; for people.
    """
    params = {
        "ids": list(ids),
        "error": error,
        "delay": RETRY,
        "doublings": DOUBLINGS_MAX,
    }
    cursor.execute(PUT_OFF, params)


def cancel(cursor: Cursor, ids: Sequence[int]) -> list[int]:
    """
    Delete messages that have not been published; return which.

    Args:
        cursor: The caller commits; until then the leader passes over them.
        ids: Of the messages.
    """
    cursor.execute(CANCEL, {"ids": list(ids)})
    return [message_id for (message_id,) in cursor.fetchall()]
