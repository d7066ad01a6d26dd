"""
Pause: workers leave the jobs of a queue alone until it is resumed.

Enqueues go on, and so does what runs already. A pause may end by itself: that is a
time, and nobody need do anything when it comes.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django_pgqueue.postgres.cursor import Cursor, has_row

# Locks: a row lock on the queue's row, until the caller's transaction ends; a second
# operator waits for it and then finds the queue paused. A queue that no worker has met
# gets its row here, so that it can be paused before its first job. A pause that has
# ended by itself counts as none, and the new one takes its place.
PAUSE = """
INSERT INTO pgqueue_queue AS q (name, paused_at, paused_until, paused_by, pause_reason)
VALUES (%(queue)s, statement_timestamp(),
        coalesce(%(until)s::timestamptz,
                 statement_timestamp() + %(lasts)s::interval),
        nullif(%(by)s::text, ''), nullif(%(reason)s::text, ''))
ON CONFLICT (name) DO UPDATE
   SET paused_at = EXCLUDED.paused_at, paused_until = EXCLUDED.paused_until,
       paused_by = EXCLUDED.paused_by, pause_reason = EXCLUDED.pause_reason
 WHERE q.paused_at IS NULL OR q.paused_until <= statement_timestamp()
RETURNING q.name
"""

# Locks: as PAUSE. One that has ended by itself is cleared, and does not count as ended
# by this.
RESUME = """
WITH before AS MATERIALIZED (
    SELECT name, paused_until <= statement_timestamp() AS has_ended
      FROM pgqueue_queue WHERE name = %(queue)s AND paused_at IS NOT NULL FOR UPDATE),
cleared AS (
    UPDATE pgqueue_queue SET paused_at = NULL, paused_until = NULL, paused_by = NULL,
           pause_reason = NULL
     WHERE name = (SELECT name FROM before)
    RETURNING name)
SELECT coalesce(before.has_ended, false) FROM before JOIN cleared USING (name)
"""


def pause(
    cursor: Cursor,
    queue: str,
    *,
    by: str = "",
    reason: str = "",
    until: datetime | timedelta | None = None,
) -> bool:
    """
    Pause *queue*; False: it was paused already, and all of that stays as it is.

    Args:
        cursor: An open cursor; the caller commits.
        queue: A queue name.
        by: Who pauses, at most 150 characters; "": nobody is named.
        reason: Why; "": not said.
        until: When it ends by itself, or how long it lasts; None: it does not.
    """
    is_length = isinstance(until, timedelta)
    return has_row(
        cursor,
        PAUSE,
        queue=queue,
        by=by,
        reason=reason,
        until=None if is_length else until,
        lasts=until if is_length else None,
    )


def resume(cursor: Cursor, queue: str) -> bool:
    """End the pause of *queue*; False: it was not paused, or no more."""
    cursor.execute(RESUME, {"queue": queue})
    row = cursor.fetchone()
    return row is not None and not row[0]
