"""
Partitions: the archive's days, made ahead and dropped when their retention is over.

How a day is attached and detached beside running acks stands in
postgres/day_tables.py.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

from psycopg import sql

from django_pgqueue.postgres import day_tables, keys
from django_pgqueue.postgres.day_tables import DayTable, first_kept

DAYS_AHEAD = day_tables.DAYS_AHEAD
today = day_tables.today

ARCHIVE = DayTable("pgqueue_archived_job")

# Locks: one process at a time makes or drops partitions; the rest wait here for the
# milliseconds that it takes.
LOCK = "SELECT pg_advisory_xact_lock(%(class)s, 0)"

CREATE = """
CREATE TABLE IF NOT EXISTS {name}
    (LIKE pgqueue_archived_job INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
"""


def make_partitions(cursor: Any, *, days_ahead: int = DAYS_AHEAD) -> list[date]:
    """
    Make the partitions of today and the coming days; return those that were missing.

    Call it inside a transaction: a lock keeps other makers out until it commits.
    """
    cursor.execute(LOCK, {"class": keys.PARTITIONS})
    first, attached = today(cursor), ARCHIVE.attached(cursor)
    days = (first + timedelta(days=n) for n in range(days_ahead + 1))
    missing = [day for day in days if day not in attached]
    for day in missing:
        _make(cursor, day)
    return missing


def expired_partitions(cursor: Any, *, keep: timedelta) -> list[date]:
    """Return the days whose every row is older than *keep*, oldest first."""
    return ARCHIVE.expired(cursor, keep)


def drop_partition(
    cursor: Any, day: date, *, may_go: Callable[[date, str], bool] | None = None
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
    cursor: Any,
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


def _drop(cursor: Any, day: date, may_go: Callable[[date, str], bool] | None) -> bool:
    """Drop a detached day, or attach it again."""
    if may_go is not None and not may_go(day, partition_name(day)):
        ARCHIVE.attach(cursor, day)
        return False
    ARCHIVE.drop(cursor, day)
    return True


def _make(cursor: Any, day: date) -> None:
    name = sql.Identifier(partition_name(day))
    cursor.execute(sql.SQL(CREATE).format(name=name))
    ARCHIVE.attach(cursor, day)
