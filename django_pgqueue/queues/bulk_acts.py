"""
Bulk acts: what somebody has asked to be done to everything that a filter means.

A row says what is meant and how far it is. Whoever does the next chunk holds its row
locked meanwhile, so that nobody does the same chunk, and a stop comes between two.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_pgqueue.postgres.cursor import Cursor, one_row

# The hint that one was asked for; '!' is in no queue's name.
HINT = "!bulk"

# Ended ones that one purge deletes.
PURGE_ROWS_MAX = 500

# Locks: none but of the row that is new.
CREATE = """
INSERT INTO pgqueue_bulk_act (verb, filters, asked_by, reason, per_second, counted,
                              is_more, top, shown_at, position)
VALUES (%(verb)s, %(filters)s::jsonb, %(by)s, %(reason)s, %(per_second)s, %(counted)s,
        %(is_more)s, %(top)s, %(shown_at)s, %(position)s)
RETURNING id
"""

# Locks: none. Along the index of the open ones.
DUE = """
SELECT extract(epoch FROM next_at - statement_timestamp())::float8
  FROM pgqueue_bulk_act WHERE state IN ('waiting', 'running')
 ORDER BY next_at, id LIMIT 1
"""

# Locks: the row, until the transaction of the chunk ends; SKIP LOCKED, so that two who
# lead do chunks of two acts.
TAKE = """
SELECT id, verb, filters::text, asked_by, reason, per_second, top, position, shown_at
  FROM pgqueue_bulk_act
 WHERE state IN ('waiting', 'running') AND next_at <= statement_timestamp()
 ORDER BY next_at, id LIMIT 1
   FOR UPDATE SKIP LOCKED
"""

# Locks: the row, which is locked already. By the clock, not by the start of the
# statement: the chunk has taken its time, and others are next.
NOTE = """
UPDATE pgqueue_bulk_act
   SET state = CASE WHEN %(is_over)s THEN 'done' ELSE 'running' END,
       ended_at = CASE WHEN %(is_over)s THEN clock_timestamp() END,
       started_at = coalesce(started_at, statement_timestamp()),
       next_at = clock_timestamp() + %(pause)s::interval, tries = 0,
       position = %(position)s, done = done + %(done)s, passed = passed + %(passed)s,
       -- What was said of tries that failed is no news any more.
       error = CASE WHEN %(error)s::text = '' AND tries = 0 THEN error
                    ELSE %(error)s::text END
 WHERE id = %(id)s
"""

# Locks: the row; waits for the chunk that is being done.
FAIL = """
UPDATE pgqueue_bulk_act
   SET state = CASE WHEN tries + 1 >= %(tries_max)s THEN 'failed' ELSE state END,
       ended_at = CASE WHEN tries + 1 >= %(tries_max)s THEN clock_timestamp() END,
       next_at = clock_timestamp() + %(pause)s::interval,
       tries = tries + 1, error = %(error)s
 WHERE id = %(id)s AND state IN ('waiting', 'running')
RETURNING state = 'failed'
"""

# Locks: the row; waits for the chunk that is being done, half a second at most as a
# rule.
STOP = """
UPDATE pgqueue_bulk_act
   SET state = 'stopped', stopped_by = %(by)s, ended_at = clock_timestamp()
 WHERE id = %(id)s AND state IN ('waiting', 'running')
RETURNING id
"""

# Locks: none.
PROGRESS = """
SELECT state, done, counted, position, top, error
  FROM pgqueue_bulk_act WHERE id = %(id)s
"""

# Locks: the rows that go; SKIP LOCKED, for two who lead.
PURGE = """
DELETE FROM pgqueue_bulk_act WHERE id = ANY(ARRAY(
    SELECT id FROM pgqueue_bulk_act
     WHERE ended_at < statement_timestamp() - %(keep)s::interval
     ORDER BY ended_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
"""


class Taken(NamedTuple):
    """An act of which a chunk is to be done."""

    id: int
    verb: str
    filters: dict[str, Any]
    by: str
    reason: str
    per_second: int | None
    top: int
    position: int
    shown_at: Any


def create(
    cursor: Cursor,
    *,
    verb: str,
    filters: dict[str, Any],
    by: str,
    reason: str,
    per_second: int | None,
    counted: int,
    is_more: bool,
    top: int,
    shown_at: datetime,
    position: int = 0,
) -> int:
    """Store an act, and return its id; the caller commits, and sends HINT then."""
    params = {
        "verb": verb,
        "filters": json.dumps(filters),
        "by": by,
        "reason": reason,
        "per_second": per_second,
        "counted": counted,
        "is_more": is_more,
        "top": top,
        "shown_at": shown_at,
        "position": position,
    }
    cursor.execute(CREATE, params)
    return int(one_row(cursor)[0])


def due_seconds(cursor: Cursor) -> float | None:
    """Return in how many seconds a chunk is due; None: no act is open."""
    cursor.execute(DUE)
    row = cursor.fetchone()
    return None if row is None else float(row[0])


def take(cursor: Cursor) -> Taken | None:
    """Return the act whose chunk is due, locked for this transaction; None: none is."""
    cursor.execute(TAKE)
    row = cursor.fetchone()
    if row is None:
        return None
    return Taken(*row)._replace(filters=json.loads(row[2]))


def note(
    cursor: Cursor,
    act: int,
    *,
    position: int,
    done: int,
    passed: int,
    pause: timedelta,
    is_over: bool,
    error: str = "",
) -> None:
    """
    Note what a chunk has come to, in its transaction.

    Args:
        cursor: That of take().
        act: Its id.
        position: The id up to which it has come.
        done: Rows that something was done to.
        passed: Rows that were found and left.
        pause: How long until its next chunk, at least.
        is_over: Whether there is no more.
        error: Why some were left; "": what was noted stays.
    """
    params = {
        "id": act,
        "position": position,
        "done": done,
        "passed": passed,
        "pause": pause,
        "is_over": is_over,
        "error": error,
    }
    cursor.execute(NOTE, params)


def fail(
    cursor: Cursor, act: int, error: str, *, tries_max: int, pause: timedelta
) -> bool:
    """
    Note that a chunk was not done; return whether that has ended the act.

    Args:
        cursor: Of a transaction of its own.
        act: Its id.
        error: Why.
        tries_max: The act ends when so many chunks in a row were not done.
        pause: How long until it is tried again; others are next meanwhile.
    """
    params = {"id": act, "error": error, "tries_max": tries_max, "pause": pause}
    cursor.execute(FAIL, params)
    row = cursor.fetchone()
    return row is not None and bool(row[0])


def stop(cursor: Cursor, act: int, *, by: str) -> bool:
    """End an act where it is; False: it has ended."""
    cursor.execute(STOP, {"id": act, "by": by})
    return cursor.fetchone() is not None


def progress(cursor: Cursor, act: int) -> tuple[str, int, int, int, int, str] | None:
    """Return state, done, counted, position, top and error; None: it is deleted."""
    cursor.execute(PROGRESS, {"id": act})
    found: tuple[str, int, int, int, int, str] | None = cursor.fetchone()
    return found


def purge(cursor: Cursor, *, keep: timedelta) -> int:
    """Delete acts that have ended longer ago than *keep*; return how many."""
    cursor.execute(PURGE, {"keep": keep, "limit": PURGE_ROWS_MAX})
    return cursor.rowcount
