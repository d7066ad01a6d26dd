"""
Day tables: those that are partitioned by day, such as the archive and the log.

A partition is made apart and then attached: ATTACH takes SHARE UPDATE EXCLUSIVE on the
parent, beside which rows are written, where CREATE TABLE … PARTITION OF would stall
them. It is detached concurrently, and then dropped. Days are days in UTC. The archive
and the log do all of this alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from psycopg import sql

from django_pgqueue.postgres.cursor import Cursor, column, value

# Whoever needs a day that is missing makes a week of them; the leader two, so that
# nobody finds one missing before no worker has led for a fortnight.
DAYS_AHEAD = 7
DAYS_AHEAD_OF_LEADER = 14

DAY = timedelta(days=1)

TODAY = "SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date"

# Locks: an advisory lock of the function, until the caller's transaction ends: one at a
# time makes days. A function, so that a role that does not own the table can do it.
MAKE = "SELECT {make}(%(day)s::date)"

# Locks: none; so have the two below. The day partitions that are attached.
ATTACHED = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = %(parent)s::regclass AND NOT coalesce(i.inhdetachpending, false)
"""

# Those whose DETACH CONCURRENTLY was cut off half-way.
PENDING = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = %(parent)s::regclass AND i.inhdetachpending
"""

# Tables that were made, or detached, and belong to nobody: of a crash in between.
LEFT_OVER = """
SELECT c.relname FROM pg_class c
 WHERE c.relkind = 'r' AND c.relname ~ ('^' || %(parent)s || '_[0-9]{8}$')
   AND c.relnamespace = (SELECT relnamespace FROM pg_class
                          WHERE oid = %(parent)s::regclass)
   AND NOT c.relispartition
"""

ATTACH = """
ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({last})
"""

# Locks: SHARE UPDATE EXCLUSIVE on the parent; waits for running queries of it, but
# makes nobody wait. Cannot run inside a transaction.
DETACH = "ALTER TABLE {parent} DETACH PARTITION {name} CONCURRENTLY"
# An earlier DETACH CONCURRENTLY was cut off half-way.
FINISH = "ALTER TABLE {parent} DETACH PARTITION {name} FINALIZE"
DROP = "DROP TABLE {name}"

# Locks: none. For the statements of the session that follow; 0: without an end.
PATIENCE = "SELECT set_config('lock_timeout', %(timeout)s, false)"


@dataclass(frozen=True, slots=True)
class DayTable:
    """A table with a partition for each day: its name, an underscore, 20261120."""

    parent: str
    # The function that makes a partition: sql/make_day.sql.
    function: str

    def name_of(self, day: date) -> str:
        """Return the table of *day*."""
        return f"{self.parent}_{day:%Y%m%d}"

    def day_of(self, name: str) -> date | None:
        """Return the day that a partition's name says, or None."""
        match = re.fullmatch(rf"{self.parent}_([0-9]{{8}})", name)
        try:
            return date.fromisoformat(match[1]) if match else None
        except ValueError:
            return None  # Such as 20261399: somebody else's table.

    def attached(self, cursor: Cursor) -> list[date]:
        """Return the days that rows can be read of and written to, oldest first."""
        return self._days(cursor, ATTACHED)

    def left_over(self, cursor: Cursor) -> list[date]:
        """Return the days whose table is not attached, oldest first."""
        return self._days(cursor, LEFT_OVER)

    def expired(self, cursor: Cursor, keep: timedelta) -> list[date]:
        """Return the attached days whose every row is older than *keep*."""
        first = first_kept(cursor, keep)
        return [day for day in self.attached(cursor) if day < first]

    def make(self, cursor: Cursor, *, days_ahead: int = DAYS_AHEAD) -> list[date]:
        """
        Make the partitions of today and the coming days; return the missing ones.

        Call it inside a transaction: a lock keeps other makers out until it commits.
        """
        first, attached = today(cursor), self.attached(cursor)
        days = (first + n * DAY for n in range(days_ahead + 1))
        return [
            day for day in days if day not in attached and self.make_day(cursor, day)
        ]

    def make_day(self, cursor: Cursor, day: date) -> bool:
        """
        Make the partition of *day*; return False if another maker was faster.

        Raises:
            psycopg.errors.InsufficientPrivilege: The role may not make days.
            psycopg.errors.InvalidParameterValue: Only the owner may make a day so far
                away.
        """
        statement = sql.SQL(MAKE).format(make=sql.Identifier(self.function))
        return bool(value(cursor, statement, day=day))

    def remove(
        self,
        cursor: Cursor,
        day: date,
        *,
        may_go: Callable[[date, str], bool] | None = None,
    ) -> bool:
        """
        Drop a day without making a writer or a reader wait; return whether it is gone.

        Args:
            cursor: In autocommit: DETACH CONCURRENTLY runs in no transaction.
            day: The day to drop.
            may_go: Called with the day and its table once that is detached, so that
                nobody can write to it any more. If it returns False, the table is
                attached again.
        """
        self._alter(cursor, DETACH, self.name_of(day))
        return self._drop(cursor, day, may_go)

    def sweep(
        self,
        cursor: Cursor,
        *,
        is_old: Callable[[date], bool],
        may_go: Callable[[date, str], bool] | None = None,
    ) -> list[date]:
        """
        Finish what a crash left half done; return the days that were dropped.

        Args:
            cursor: In autocommit.
            is_old: Called with each detached day. One that is not old stays as it is.
            may_go: As for remove().
        """
        for name in column(cursor, PENDING, parent=self.parent):
            self._alter(cursor, FINISH, name)
        return [
            day
            for day in self.left_over(cursor)
            if is_old(day) and self._drop(cursor, day, may_go)
        ]

    def _drop(
        self, cursor: Cursor, day: date, may_go: Callable[[date, str], bool] | None
    ) -> bool:
        """Drop a detached day, or attach it again."""
        name = self.name_of(day)
        if may_go is None or may_go(day, name):
            self._alter(cursor, DROP, name)
            return True
        cursor.execute(
            sql.SQL(ATTACH).format(
                parent=sql.Identifier(self.parent),
                name=sql.Identifier(name),
                first=sql.Literal(f"{day} 00:00+00"),
                last=sql.Literal(f"{day + DAY} 00:00+00"),
            )
        )
        return False

    def _alter(self, cursor: Cursor, statement: str, name: str) -> None:
        cursor.execute(
            sql.SQL(statement).format(
                parent=sql.Identifier(self.parent), name=sql.Identifier(name)
            )
        )

    def _days(self, cursor: Cursor, statement: str) -> list[date]:
        days = map(self.day_of, column(cursor, statement, parent=self.parent))
        return sorted(day for day in days if day is not None)


def today(cursor: Cursor) -> date:
    """Return the day that it is in UTC, by the database's clock."""
    day: date = value(cursor, TODAY)
    return day


def first_kept(cursor: Cursor, keep: timedelta) -> date:
    """Return the first day that has rows which are not older than *keep*."""
    midnight = datetime.combine(today(cursor), datetime.min.time(), UTC)
    return (midnight - keep).date()


def set_patience(cursor: Cursor, timeout: str) -> None:
    """Let no statement of the session wait longer for a lock: "5s"; "0": for ever."""
    cursor.execute(PATIENCE, {"timeout": timeout})


ARCHIVE = DayTable("pgqueue_archived_job", "pgqueue_make_archive_day")
LOG = DayTable("pgqueue_message", "pgqueue_make_log_day")
