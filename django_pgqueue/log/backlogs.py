"""
Backlogs: what waits for a subscriber that is slow, or sleeps.

The leader counts the jobs of subscriptions that may have so many and no more, and
writes down which are full. Publishers count nothing: the look at subscriptions that
they make in any case says which one makes no jobs, or wants them refused.

One that pauses is *held*: it makes no jobs of what is published. Holding raises the
epoch of log/subscriptions.py in the commit that holds, so the epoch of a message says
whether its statement saw that; and so does letting it go. What it missed in between is
the back-fill's, which goes on while it is held, as far as there is room, and lets it go
when it has come to the end of the log.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from django_pgqueue.log.horizon import DRAWN
from django_pgqueue.postgres import keys
from django_pgqueue.postgres.cursor import Cursor, column, has_row, rows, value

# Publishers believe for so long that a subscription is full; sql/store_message.sql and
# store_messages.sql have this number, too. So nobody is refused when no worker leads.
FRESH_SECONDS = 30.0

# Locks: none; so has COUNT. One that is not bounded any more is let go.
BOUNDED = """
SELECT s.id, s.pattern, s.queue, s.task, s.backlog_max, s.backlog_on_full,
       s.full_at IS NOT NULL, s.held_at IS NOT NULL, s.backfill_position IS NOT NULL,
       s.missed IS NOT NULL AND s.backfill_position IS NULL,
       extract(epoch FROM clock_timestamp() - s.backlog_at)::float8
  FROM pgqueue_subscription s
 WHERE s.disabled_at IS NULL
   AND (s.backlog_max IS NOT NULL OR s.held_at IS NOT NULL OR s.full_at IS NOT NULL
        OR s.missed IS NOT NULL)
 ORDER BY s.id
"""

# Jobs that have not ended, along the index of claims, as queues/depth.py counts those
# of queues: in a transaction with limit(…, plans=Plans.IN_ORDER).
COUNT = """
SELECT asked.id, held.jobs
  FROM unnest(%(ids)s::bigint[], %(queues)s::text[], %(tasks)s::text[],
              %(rows)s::integer[]) AS asked(id, queue, task, rows)
 CROSS JOIN LATERAL (
       SELECT count(*)::integer AS jobs FROM (
              SELECT 1 FROM pgqueue_job j
               WHERE j.queue = asked.queue AND j.task = asked.task
                 AND j.message_id IS NOT NULL
               ORDER BY j.queue, j.priority DESC, j.visible_at
               LIMIT asked.rows) counted) held
"""

# Locks: row locks on these subscriptions, for the statement; those that somebody has
# locked are left out.
NOTE = """
WITH free AS MATERIALIZED (
    SELECT s.id FROM pgqueue_subscription s WHERE s.id = ANY(%(ids)s::bigint[])
       FOR NO KEY UPDATE SKIP LOCKED)
UPDATE pgqueue_subscription s
   SET backlog = counted.jobs, backlog_at = statement_timestamp(),
       full_at = CASE WHEN counted.is_full
                      THEN coalesce(s.full_at, statement_timestamp()) END
  FROM free
  JOIN unnest(%(ids)s::bigint[], %(jobs)s::integer[], %(fulls)s::boolean[])
       AS counted(id, jobs, is_full) USING (id)
 WHERE s.id = free.id
RETURNING s.id
"""

# The jobs that have waited for longest, of those that nobody runs: the first ones of
# the index of claims. Locks: none.
OLDEST = """
SELECT j.id FROM pgqueue_job j
 WHERE j.queue = %(queue)s AND j.task = %(task)s
   AND j.message_id IS NOT NULL AND j.leased_by IS NULL
 ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT %(jobs)s
"""

# Locks: the advisory lock of those who declare subscriptions, until the transaction
# ends; they lock rows before the row of the epoch. Not waited for: a migration may take
# long.
TRY_LOCK = f"SELECT pg_try_advisory_xact_lock(%(class)s, {keys.INSTALLATION})"

# Locks: the row of the epoch and the subscription, until the transaction ends. A
# message whose statement sees this commit has an id that is drawn after it, above what
# is drawn now.
HOLD = f"""
WITH state AS (
    INSERT INTO pgqueue_log_state AS s (id, epoch) VALUES (1, 1)
    ON CONFLICT (id) DO UPDATE SET epoch = s.epoch + 1
    RETURNING epoch
), drawn AS MATERIALIZED (
    SELECT {DRAWN} AS id
)
UPDATE pgqueue_subscription s
   SET held_at = clock_timestamp(),
       missed = CASE WHEN s.backfill_position IS NULL THEN '{{}}'
                     ELSE coalesce(s.missed, ARRAY[0, s.since_epoch]) END
                || state.epoch,
       backfill_position = coalesce(s.backfill_position, drawn.id)
  FROM state, drawn
 WHERE s.id = %(id)s AND s.held_at IS NULL AND s.disabled_at IS NULL
RETURNING s.id
"""

# Locks: as HOLD. From here on its back-fill ends as that of a new subscription does:
# once nobody has a snapshot from before.
RELEASE = """
WITH state AS (
    UPDATE pgqueue_log_state s SET epoch = s.epoch + 1 WHERE s.id = 1 RETURNING epoch
)
UPDATE pgqueue_subscription s
   SET held_at = NULL, missed = s.missed || state.epoch,
       backfill_xid = pg_current_xact_id()::text::bigint
  FROM state
 WHERE s.id = %(id)s AND s.held_at IS NOT NULL AND s.backfill_position = %(position)s
RETURNING s.id
"""

# A leader of an older version knows nothing of what was missed: it ends the back-fill
# once all is made that was before the subscription. So it begins anew, with the rest.
# Locks: a row lock on the subscription.
FILL_AGAIN = """
UPDATE pgqueue_subscription s
   SET backfill_position = 0, backfill_xid = pg_current_xact_id()::text::bigint,
       missed = CASE WHEN s.missed[1] = 0 THEN s.missed[3:] ELSE s.missed END
 WHERE s.id = %(id)s AND s.missed IS NOT NULL AND s.backfill_position IS NULL
RETURNING s.id
"""

# Who is full, or held. Locks: none.
FULL = """
SELECT s.pattern, s.queue, s.backlog, s.backlog_max, s.backlog_on_full,
       extract(epoch FROM clock_timestamp() - coalesce(s.held_at, s.full_at))::float8
           AS seconds
  FROM pgqueue_subscription s
 WHERE s.disabled_at IS NULL AND (s.full_at IS NOT NULL OR s.held_at IS NOT NULL)
 ORDER BY s.queue, s.pattern, s.task
"""


class Bounded(NamedTuple):
    """A subscription that may have so many jobs, as its row is."""

    id: int
    pattern: str
    queue: str
    task: str
    # None: any number; it was full when its code said so.
    depth_max: int | None
    on_full: str | None
    is_full: bool
    is_held: bool
    # Its back-fill is open, and goes by what was counted.
    is_filling: bool
    # It was ended by somebody who knows nothing of what was missed.
    is_cut_off: bool
    # Since it was counted; None: it was not yet.
    age_seconds: float | None

    def will_be_full(self, jobs: int) -> bool:
        """Return whether it is full with so many jobs; one that pauses, until half."""
        if self.depth_max is None:
            return False
        if self.on_full == "drop_oldest":
            return jobs > self.depth_max
        if self.on_full == "pause" and self.is_full:
            return jobs > self.depth_max // 2
        return jobs >= self.depth_max

    def __str__(self) -> str:
        return f"{self.pattern} → {self.queue} ({self.task})"


def find_bounded(cursor: Cursor) -> list[Bounded]:
    """Return the subscriptions that are to be counted."""
    return rows(Bounded, cursor, BOUNDED)


def count(cursor: Cursor, bounded: Sequence[Bounded], *, beyond: int) -> dict[int, int]:
    """
    Count the jobs of each, to its bound and *beyond*, by the id of the subscription.

    Args:
        cursor: In a transaction with limit(…, plans=Plans.IN_ORDER).
        bounded: Which.
        beyond: How many more are counted.
    """
    params = {
        "ids": [each.id for each in bounded],
        "queues": [each.queue for each in bounded],
        "tasks": [each.task for each in bounded],
        "rows": [(each.depth_max or 0) + beyond for each in bounded],
    }
    cursor.execute(COUNT, params)
    return dict(cursor.fetchall())


def note(cursor: Cursor, jobs: Mapping[int, int], full: Container[int]) -> set[int]:
    """
    Write down what was counted, and which are full; publishers go by it.

    Returns:
        Of which subscriptions: nobody else had them locked.
    """
    params = {
        "ids": list(jobs),
        "jobs": list(jobs.values()),
        "fulls": [each in full for each in jobs],
    }
    cursor.execute(NOTE, params)
    return {subscription_id for (subscription_id,) in cursor.fetchall()}


def oldest(cursor: Cursor, each: Bounded, jobs: int) -> list[int]:
    """
    Return the ids of jobs that have waited for longest, so many at most.

    Args:
        cursor: In a transaction with limit(…, plans=Plans.IN_ORDER).
        each: Of which subscription.
        jobs: How many.
    """
    params = {"queue": each.queue, "task": each.task, "jobs": jobs}
    return column(cursor, OLDEST, **params)


def hold(cursor: Cursor, subscription_id: int) -> bool:
    """
    Let messages make no jobs of it until release(); False: not now.

    Args:
        cursor: In a transaction of READ COMMITTED.
        subscription_id: Of the subscription.
    """
    return _locked(cursor) and has_row(cursor, HOLD, id=subscription_id)


def release(cursor: Cursor, subscription_id: int, position: int) -> bool:
    """
    Let messages make jobs of it again; False: not now.

    Args:
        cursor: In a transaction of READ COMMITTED.
        subscription_id: Of the subscription.
        position: Up to where its back-fill has come, by what the caller has read.
    """
    return _locked(cursor) and has_row(
        cursor, RELEASE, id=subscription_id, position=position
    )


def fill_again(cursor: Cursor, subscription_id: int) -> bool:
    """Begin its back-fill anew with what it has missed; False: that is not needed."""
    return has_row(cursor, FILL_AGAIN, id=subscription_id)


def _locked(cursor: Cursor) -> bool:
    return bool(value(cursor, TRY_LOCK, **{"class": keys.SUBSCRIPTIONS}))
