"""
Watch: what is wrong with jobs, schedules and groups, said once.

The look itself is a function of the database, sql/watch.sql, so that it needs no
worker. Here is how workers and commands call it, and read what it has written down.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django_pgqueue.postgres.cursor import Cursor, one_row

# What is notified after a look that has said something.
HINT = "!alert"

# Locks: those of the function.
LOOK = "SELECT kind, subject, change, count, detail, since FROM pgqueue_watch()"

# Locks: none. What was said after a moment, by whoever looked.
SAID = """
SELECT a.kind, a.subject,
       CASE WHEN a.ended_at IS NOT NULL THEN 'ends'
            WHEN a.said_at = a.began_at THEN 'begins' ELSE 'grows' END,
       a.count, a.detail, a.began_at, a.said_at
  FROM pgqueue_alert a
 WHERE a.said_at > %(after)s::timestamptz
 ORDER BY a.said_at, a.name LIMIT %(limit)s
"""

# Locks: none. The oldest first.
STANDING = """
SELECT a.kind, a.subject, 'stands', a.count, a.detail, a.began_at
  FROM pgqueue_alert a WHERE a.ended_at IS NULL
 ORDER BY a.began_at, a.name LIMIT %(limit)s
"""

NOW = "SELECT clock_timestamp()"

ALERTS_MAX = 1_000


class Alert(NamedTuple):
    """
    What is wrong, or was.

    Attributes:
        kind: "lapsed_leases", "unclaimed_jobs", "new_dead_letters",
            "silent_schedules", "halted_groups" or "stuck_sagas".
        subject: Whose: a queue, a task, a schedule, a topic and a group, or the name
            of sagas.
        change: "begins", "grows" or "ends"; "stands": none.
        count: Of jobs, dead letters, partitions or sagas; of a schedule, 1.
        detail: What was found, in a sentence.
        since: When it began.
    """

    kind: str
    subject: str
    change: str
    count: int  # type: ignore[assignment]  # Not the method of tuples.
    detail: str
    since: datetime


def look(cursor: Cursor) -> list[Alert]:
    """
    Look for what is wrong; return what has changed since the last look.

    While somebody else looks, nothing has.

    Args:
        cursor: In autocommit: the statement is a transaction of its own, after whose
            end others hear of it.
    """
    cursor.execute(LOOK)
    return [Alert(*row) for row in cursor.fetchall()]


def said_after(
    cursor: Cursor, after: datetime, *, limit: int = ALERTS_MAX
) -> tuple[list[Alert], datetime]:
    """Return what was said after a moment, and the moment of the last of it."""
    cursor.execute(SAID, {"after": after, "limit": limit})
    rows = cursor.fetchall()
    return [Alert(*row[:-1]) for row in rows], rows[-1][-1] if rows else after


def standing(cursor: Cursor, *, limit: int = ALERTS_MAX) -> list[Alert]:
    """Return what is wrong, by the last look; the oldest first."""
    cursor.execute(STANDING, {"limit": limit})
    return [Alert(*row) for row in cursor.fetchall()]


def now(cursor: Cursor) -> datetime:
    """Return the database's time."""
    cursor.execute(NOW)
    moment: datetime
    (moment,) = one_row(cursor)
    return moment
