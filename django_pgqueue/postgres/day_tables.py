"""
Day tables: those that are partitioned by day, such as the archive and the log.

A partition is made apart and then attached: ATTACH takes SHARE UPDATE EXCLUSIVE on the
parent, beside which rows are written, where CREATE TABLE … PARTITION OF would stall
them. It is detached concurrently, and then dropped. Days are days in UTC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from psycopg import sql

from django_pgqueue.postgres.cursor import Cursor, one_row

# Whoever needs a day that is missing makes a week of them; the leader two, so that
# nobody finds one missing before no worker has led for a fortnight.
DAYS_AHEAD = 7
DAYS_AHEAD_OF_LEADER = 14

DAY = timedelta(days=1)

TODAY = "SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date"

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

    def attach(self, cursor: Cursor, day: date) -> None:
        """Let a table that was made apart, or detached, take the rows of its day."""
        cursor.execute(
            sql.SQL(ATTACH).format(
                parent=sql.Identifier(self.parent),
                name=sql.Identifier(self.name_of(day)),
                first=sql.Literal(f"{day} 00:00+00"),
                last=sql.Literal(f"{day + DAY} 00:00+00"),
            )
        )

    def detach(self, cursor: Cursor, day: date) -> None:
        """Wait until nobody uses the table of *day*; nobody waits. In autocommit."""
        self._alter(cursor, DETACH, self.name_of(day))

    def finish_detaches(self, cursor: Cursor) -> None:
        """Finish what detach() was cut off in. In autocommit."""
        cursor.execute(PENDING, {"parent": self.parent})
        for (name,) in cursor.fetchall():
            self._alter(cursor, FINISH, name)

    def drop(self, cursor: Cursor, day: date) -> None:
        """Drop the detached table of *day*."""
        self._alter(cursor, DROP, self.name_of(day))

    def _alter(self, cursor: Cursor, statement: str, name: str) -> None:
        cursor.execute(
            sql.SQL(statement).format(
                parent=sql.Identifier(self.parent), name=sql.Identifier(name)
            )
        )

    def _days(self, cursor: Cursor, statement: str) -> list[date]:
        cursor.execute(statement, {"parent": self.parent})
        days = (self.day_of(name) for (name,) in cursor.fetchall())
        return sorted(day for day in days if day is not None)


def today(cursor: Cursor) -> date:
    """Return the day that it is in UTC, by the database's clock."""
    cursor.execute(TODAY)
    day: date = one_row(cursor)[0]
    return day


def first_kept(cursor: Cursor, keep: timedelta) -> date:
    """Return the first day that has rows which are not older than *keep*."""
    midnight = datetime.combine(today(cursor), datetime.min.time(), UTC)
    return (midnight - keep).date()


def set_patience(cursor: Cursor, timeout: str) -> None:
    """Let no statement of the session wait longer for a lock: "5s"; "0": for ever."""
    cursor.execute(PATIENCE, {"timeout": timeout})
