"""
Partitions: the archive's days, made ahead and dropped when their retention is over.

How a day is attached and detached beside running acks stands in
postgres/day_tables.py.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

from django_pgqueue.postgres import day_tables
from django_pgqueue.postgres.cursor import Cursor, one_row
from django_pgqueue.postgres.day_tables import DayTable, first_kept

DAYS_AHEAD = day_tables.DAYS_AHEAD
today = day_tables.today

ARCHIVE = DayTable("pgqueue_archived_job")

# Locks: an advisory lock of the function, until the caller's transaction ends: one at a
# time makes days. A function, so that a role can do it that does not own the archive.
MAKE = "SELECT pgqueue_make_archive_day(%(day)s::date)"


def make_partitions(cursor: Cursor, *, days_ahead: int = DAYS_AHEAD) -> list[date]:
    """
    Make the partitions of today and the coming days; return those that were missing.

    Call it inside a transaction: a lock keeps other makers out until it commits.
    """
    first, attached = today(cursor), ARCHIVE.attached(cursor)
    days = (first + timedelta(days=n) for n in range(days_ahead + 1))
    return [day for day in days if day not in attached and make_partition(cursor, day)]


def make_partition(cursor: Cursor, day: date) -> bool:
    """
    Make the partition of *day*; False: it is there, maybe since just now.

    Raises:
        psycopg.errors.InsufficientPrivilege: The role may not.
        psycopg.errors.InvalidParameterValue: Nor any role but the owner's so far away.
    """
    cursor.execute(MAKE, {"day": day})
    return bool(one_row(cursor)[0])


def expired_partitions(cursor: Cursor, *, keep: timedelta) -> list[date]:
    """Return the days whose every row is older than *keep*, oldest first."""
    return ARCHIVE.expired(cursor, keep)


def drop_partition(
    cursor: Cursor, day: date, *, may_go: Callable[[date, str], bool] | None = None
) -> bool:
    """
    Drop one day of the archive without making an ack wait.

    Call it in autocommit: DETACH CONCURRENTLY runs in no transaction.

    Args:
        cursor: An open cursor.
        day: Which.
        may_go: Asked with the day and its table when that is detached, so that nobody
            can write to it any more; if it may not, it is attached again.

    Returns:
        Whether it was dropped.
    """
    ARCHIVE.detach(cursor, day)
    return _drop(cursor, day, may_go)


def sweep(
    cursor: Cursor,
    *,
    keep: timedelta,
    may_go: Callable[[date, str], bool] | None = None,
) -> list[str]:
    """
    Finish what a crash left half done: pending detaches, and old detached days.

    Returns the names that were dropped. A detached table that is younger than *keep*
    is somebody's and stays; one that may not go is attached again. Call it in
    autocommit.
    """
    ARCHIVE.finish_detaches(cursor)
    first = first_kept(cursor, keep)
    return [
        partition_name(day)
        for day in ARCHIVE.left_over(cursor)
        if day < first and _drop(cursor, day, may_go)
    ]


def partition_name(day: date) -> str:
    """Return the table of *day*: pgqueue_archived_job_20261120."""
    return ARCHIVE.name_of(day)


def day_of(name: str) -> date | None:
    """Return the day that a partition's name says, or None."""
    return ARCHIVE.day_of(name)


def _drop(
    cursor: Cursor, day: date, may_go: Callable[[date, str], bool] | None
) -> bool:
    """Drop a detached day, or attach it again."""
    if may_go is not None and not may_go(day, partition_name(day)):
        ARCHIVE.attach(cursor, day)
        return False
    ARCHIVE.drop(cursor, day)
    return True
