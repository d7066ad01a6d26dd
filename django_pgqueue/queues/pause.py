"""
Pause: workers leave the jobs of a queue alone until it is resumed.

Enqueues go on, and so does what runs already.
"""

from __future__ import annotations

from django_pgqueue.postgres.cursor import Cursor

# Locks: a row lock on the queue's row, until the caller's transaction ends; a second
# operator waits for it and then finds the queue paused. A queue that no worker has met
# gets its row here, so that it can be paused before its first job.
PAUSE = """
INSERT INTO pgqueue_queue AS q (name, paused_at, paused_by, pause_reason)
VALUES (%(queue)s, statement_timestamp(), nullif(%(by)s::text, ''),
        nullif(%(reason)s::text, ''))
ON CONFLICT (name) DO UPDATE
   SET paused_at = EXCLUDED.paused_at, paused_by = EXCLUDED.paused_by,
       pause_reason = EXCLUDED.pause_reason
 WHERE q.paused_at IS NULL
RETURNING q.name
"""

# Locks: as PAUSE.
RESUME = """
UPDATE pgqueue_queue SET paused_at = NULL, paused_by = NULL, pause_reason = NULL
 WHERE name = %(queue)s AND paused_at IS NOT NULL
RETURNING name
"""


def pause(cursor: Cursor, queue: str, *, by: str = "", reason: str = "") -> bool:
    """
    Pause *queue*; False: it was paused already, and who and why stay as they are.

    Args:
        cursor: An open cursor; the caller commits.
        queue: A queue name.
        by: Who pauses, at most 150 characters; "": nobody is named.
        reason: Why; "": not said.
    """
    cursor.execute(PAUSE, {"queue": queue, "by": by, "reason": reason})
    return cursor.fetchone() is not None


def resume(cursor: Cursor, queue: str) -> bool:
    """End the pause of *queue*; False: it was not paused."""
    cursor.execute(RESUME, {"queue": queue})
    return cursor.fetchone() is not None
