"""
Partitions: the archive's days, made ahead and dropped when their retention is over.

A partition is made apart and then attached: ATTACH takes SHARE UPDATE EXCLUSIVE on the
parent, beside which acks go on, where CREATE TABLE … PARTITION OF would stall them.
Days are days in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

from psycopg import sql

from django_pgqueue.postgres import keys

DAYS_AHEAD = 7

NAME = re.compile(r"pgqueue_archived_job_(\d{8})\Z")

# Locks: one process at a time makes or drops partitions; the rest wait here for the
# milliseconds that it takes.
LOCK = "SELECT pg_advisory_xact_lock(%(class)s, 0)"

TODAY = "SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date"

# Locks: none. The day partitions that are attached.
ATTACHED = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'pgqueue_archived_job'::regclass
   AND NOT coalesce(i.inhdetachpending, false)
"""

# Tables that were made, or detached, and belong to nobody: of a crash in between.
LEFT_OVER = """
SELECT c.relname FROM pg_class c
 WHERE c.relkind = 'r' AND c.relname ~ '^pgqueue_archived_job_[0-9]{8}$'
   AND c.relnamespace = (SELECT relnamespace FROM pg_class
                          WHERE oid = 'pgqueue_archived_job'::regclass)
   AND NOT c.relispartition
"""

CREATE = """
CREATE TABLE IF NOT EXISTS {name}
    (LIKE pgqueue_archived_job INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
"""
ATTACH = """
ALTER TABLE pgqueue_archived_job ATTACH PARTITION {name}
    FOR VALUES FROM ({first}) TO ({last})
"""

# Locks: SHARE UPDATE EXCLUSIVE on the parent; waits for running queries of it, but
# makes nobody wait. Cannot run inside a transaction.
DETACH = "ALTER TABLE pgqueue_archived_job DETACH PARTITION {name} CONCURRENTLY"
# An earlier DETACH CONCURRENTLY was cut off half-way.
FINISH = "ALTER TABLE pgqueue_archived_job DETACH PARTITION {name} FINALIZE"
DROP = "DROP TABLE {name}"

PENDING = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'pgqueue_archived_job'::regclass AND i.inhdetachpending
"""


def make_partitions(cursor: Any, *, days_ahead: int = DAYS_AHEAD) -> list[date]:
    """
    Make the partitions of today and the coming days; return those that were missing.

    Call it inside a transaction: a lock keeps other makers out until it commits.
    """
    cursor.execute(LOCK, {"class": keys.PARTITIONS})
    first = today(cursor)
    cursor.execute(ATTACHED)
    attached = {name for (name,) in cursor.fetchall()}
    made = []
    for day in (first + timedelta(days=n) for n in range(days_ahead + 1)):
        if partition_name(day) not in attached:
            _make(cursor, day)
            made.append(day)
    return made


def expired_partitions(cursor: Any, *, keep: timedelta) -> list[date]:
    """Return the days whose every row is older than *keep*, oldest first."""
    last_kept = _last_kept(cursor, keep)
    cursor.execute(ATTACHED)
    days = (day_of(name) for (name,) in cursor.fetchall())
    return sorted(day for day in days if day and day + timedelta(days=1) <= last_kept)


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
    name = partition_name(day)
    cursor.execute(sql.SQL(DETACH).format(name=sql.Identifier(name)))
    return _drop(cursor, day, name, may_go)


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
    cursor.execute(PENDING)
    for (name,) in cursor.fetchall():
        cursor.execute(sql.SQL(FINISH).format(name=sql.Identifier(name)))
    last_kept = _last_kept(cursor, keep)
    cursor.execute(LEFT_OVER)
    dropped = []
    for (name,) in cursor.fetchall():
        day = day_of(name)
        is_old = day is not None and day + timedelta(days=1) <= last_kept
        if day is not None and is_old and _drop(cursor, day, name, may_go):
            dropped.append(name)
    return dropped


def today(cursor: Any) -> date:
    """Return the day that it is in UTC, by the database's clock."""
    cursor.execute(TODAY)
    day: date = cursor.fetchone()[0]
    return day


def partition_name(day: date) -> str:
    """Return the table of *day*: pgqueue_archived_job_20261120."""
    return f"pgqueue_archived_job_{day:%Y%m%d}"


def day_of(name: str) -> date | None:
    """Return the day that a partition's name says, or None."""
    match = NAME.match(name)
    try:
        return date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None  # Such as 20261399: somebody else's table.


def _last_kept(cursor: Any, keep: timedelta) -> date:
    """Return the day on which rows of the age *keep* were written."""
    midnight = datetime.combine(today(cursor), datetime.min.time(), UTC)
    return (midnight - keep).date()


def _drop(
    cursor: Any, day: date, name: str, may_go: Callable[[date, str], bool] | None
) -> bool:
    """Drop a detached day, or attach it again."""
    if may_go is not None and not may_go(day, name):
        _attach(cursor, day)
        return False
    cursor.execute(sql.SQL(DROP).format(name=sql.Identifier(name)))
    return True


def _make(cursor: Any, day: date) -> None:
    name = sql.Identifier(partition_name(day))
    cursor.execute(sql.SQL(CREATE).format(name=name))
    _attach(cursor, day)


def _attach(cursor: Any, day: date) -> None:
    cursor.execute(
        sql.SQL(ATTACH).format(
            name=sql.Identifier(partition_name(day)),
            first=sql.Literal(f"{day} 00:00+00"),
            last=sql.Literal(f"{day + timedelta(days=1)} 00:00+00"),
        )
    )
