"""
Days: the partitions of the log, made ahead, closed when they are over, dropped.

A day is *closed* when it has been over for a while: its row in
pgqueue_log_day says the highest id that can stand in it, and a reader whose position is
there need not look into it. The proof is in the order. A row's id is drawn before its
published_at is read, both within one INSERT, since columns are filled in in their
order. So of what is drawn after the day's end published_at is later still, and all that
is in the day was drawn before: when the sequence is read after the end, nothing in the
day has a higher id.

All of this is by one clock. One that steps back, by more than the margin, would write
into a closed day with a higher id, where no reader looks any more. So a closed day has
a constraint that refuses such a row: who publishes gets an error until the clock has
passed midnight again, and nothing is skipped. The constraint is NOT VALID, since it is
for new rows alone: it is added without reading the table.

A clock that is ahead by more than the margin, and then set right, is such a step.
Publishing then stops until an operator reopens the days that are not over, by the SQL
that the doctor prints. It deletes their rows, and once no reader remembers those, it
drops the constraints.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta

import psycopg

from django_pgqueue.log.closed_days import DAYS_REMEMBERED_SECONDS, closed_days
from django_pgqueue.postgres.connect import is_pooled
from django_pgqueue.postgres.cursor import Cursor, column, value
from django_pgqueue.postgres.day_tables import LOG, set_patience, today

# A day is closed when it has been over for so long; a clock may be set back by less.
MARGIN = timedelta(seconds=60)

# How long a detach may wait for whoever uses the day: a transaction that has published
# may stay open for hours, and the leader has other chores. What was not done is tried
# again; so is a close, of which the function says how long others may wait behind it.
DETACH_PATIENCE = "5s"

# Locks: none; so have all of these, where nothing else is said. Whether there are
# tables for today and tomorrow; by their names, since it is asked beside publishing.
HAS_DAYS = """
SELECT bool_and(to_regclass('pgqueue_message_' || to_char(
           (statement_timestamp() AT TIME ZONE 'UTC')::date + n, 'YYYYMMDD'))
       IS NOT NULL)
  FROM generate_series(0, 1) n
"""

# The first day that is
# not over for so long.
FIRST_OPEN = """
SELECT ((statement_timestamp() - %(margin)s::interval) AT TIME ZONE 'UTC')::date
"""

# Until the transaction ends.
PATIENCE = "SELECT set_config('lock_timeout', %(timeout)s, true)"

# Locks: the same advisory lock, so that nobody makes or drops days meanwhile; ACCESS
# EXCLUSIVE on the day, until the caller's transaction ends. A function, for roles that
# do not own the table; it reads the highest id, adds the constraint and the row.
CLOSE = "SELECT pgqueue_close_log_day(%(day)s::date)"

# The days that have the constraint of a closed day.
GUARDED = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
  JOIN pg_constraint k ON k.conrelid = c.oid AND k.conname = c.relname || '_closed'
 WHERE i.inhparent = 'pgqueue_message'::regclass
"""

# Opens days again that a wrong clock closed. Locks, each until its transaction ends:
# row locks on the rows of the days; then row locks on positions, and ACCESS EXCLUSIVE
# on the days. Between the two, every reader forgets that the days were closed: one that
# did not would pass over what is published into them. Leases are taken from readers, in
# case one of them has stood still for all that time.
REOPEN = (
    "BEGIN; DELETE FROM pgqueue_log_day WHERE day IN ({days}); COMMIT; "
    "SELECT pg_sleep({seconds:g}); "
    "BEGIN; SET LOCAL lock_timeout = '1s'; UPDATE pgqueue_position "
    "SET fence = fence + 1, leased_by = NULL, leased_until = NULL "
    "WHERE leased_by IS NOT NULL;{unguard} COMMIT;"
)
UNGUARD = " ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {table}_closed;"

# Locks: row locks on what is deleted.
FORGET = "DELETE FROM pgqueue_log_day WHERE day <> ALL(%(days)s::date[])"


def has_days(cursor: Cursor) -> bool:
    """Return whether there are partitions for today and tomorrow."""
    return bool(value(cursor, HAS_DAYS))


def first_open(cursor: Cursor, margin: timedelta) -> date:
    """Return the first day that has not been over for *margin*."""
    day: date = value(cursor, FIRST_OPEN, margin=margin)
    return day


def close_days(cursor: Cursor, *, margin: timedelta = MARGIN) -> list[date]:
    """
    Close the days that are over; return which.

    One that somebody has open, as a transaction that has published into it and has not
    committed, is left for the next time, with those after it.

    Args:
        cursor: In autocommit.
        margin: For how long they must have been over.
    """
    # A statement of its own, before the sequence is read: that order is the proof.
    end = first_open(cursor, margin)
    known = dict(closed_days(cursor).closed)
    over = [day for day in LOG.attached(cursor) if day < end]
    # In their order: readers take a day that is closed to be after those before it.
    missing = [day for day in over if day not in known]
    return list(itertools.takewhile(lambda day: _close(cursor, day), missing))


def closed_early(cursor: Cursor) -> list[date]:
    """Return the days that are closed, or half reopened, and not over by the clock."""
    guarded = set(map(LOG.day_of, column(cursor, GUARDED)))
    known = {day for day, _last_id in closed_days(cursor).closed}
    now = today(cursor)
    return sorted(day for day in guarded | known if day is not None and day >= now)


def reopen_sql(days: Sequence[date]) -> str:
    """Return the statements that let messages be published into these days again."""
    return REOPEN.format(
        days=", ".join(f"'{day}'" for day in days),
        seconds=3 * DAYS_REMEMBERED_SECONDS,
        unguard="".join(UNGUARD.format(table=LOG.name_of(day)) for day in days),
    )


def drop_day(cursor: Cursor, day: date) -> None:
    """
    Drop a day without making a publisher or a reader wait. In autocommit.

    Raises:
        psycopg.errors.LockNotAvailable: The log was in use for longer than
            DETACH_PATIENCE; sweep() goes on with it.
    """
    with _patience(cursor):
        LOG.remove(cursor, day)
    _forget(cursor)


def sweep(cursor: Cursor, *, may_go: Callable[[date], bool]) -> list[date]:
    """
    Finish what a crash left half done; return the days that were dropped.

    Args:
        cursor: In autocommit.
        may_go: Asked about each detached day; one that may not stays as it is.

    Raises:
        psycopg.errors.LockNotAvailable: As drop_day().
    """
    with _patience(cursor):
        dropped = LOG.sweep(cursor, is_old=may_go)
    _forget(cursor)
    return dropped


def _close(cursor: Cursor, day: date) -> bool:
    try:
        cursor.execute(CLOSE, {"day": day})
    except psycopg.errors.LockNotAvailable:
        return False
    return True


def _forget(cursor: Cursor) -> None:
    """Delete the rows of days that have no table any more."""
    days = [*LOG.attached(cursor), *LOG.left_over(cursor)]
    cursor.execute(FORGET, {"days": days})


@contextmanager
def _patience(cursor: Cursor) -> Iterator[None]:
    """
    Let statements wait for locks for so long, until it ends.

    In a session that a pooler shares, they wait for as long as it takes: a setting for
    the session would be that of others, and a detach runs in no transaction.
    """
    if is_pooled(cursor.connection):
        yield
        return
    set_patience(cursor, DETACH_PATIENCE)
    try:
        yield
    finally:
        if not cursor.connection.closed:
            set_patience(cursor, "0")
