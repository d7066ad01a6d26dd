"""
Closed days: which days of the log a reader need not look into.

A day that is over knows the highest id that can be in it. Who has read up to there has
read the day, whatever the clocks of its messages say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django_pgqueue.postgres.cursor import Cursor

# Locks: none. A row a day.
CLOSED = "SELECT day, last_id FROM pgqueue_log_day ORDER BY day"

# Locks: none. Those of them that all of some groups have read.
READ_BY = """
SELECT d.day, d.last_id FROM pgqueue_log_day d
 WHERE d.last_id <= (SELECT min(p.position) FROM pgqueue_position p
                      WHERE p.group_id = ANY(%(groups)s::bigint[]))
 ORDER BY d.day
"""

ALL_DAYS = "-infinity"

# How old an answer may be that a reader goes by. Older than the bound up to which it
# reads, it may miss that a day was reopened: days.reopen_sql() waits for longer before
# anything can be published into the day.
DAYS_REMEMBERED_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Days:
    """
    The days that are closed, as they were at one moment.

    Old news do no harm, unless a day was reopened since: ask after the bound up to
    which is read, or within DAYS_REMEMBERED_SECONDS.
    """

    closed: Sequence[tuple[date, int]] = ()

    def since(self, position: int) -> str:
        """
        Return the beginning of the first day with a message after *position*.

        As PostgreSQL reads a timestamptz; "-infinity": any day can have one. Days are
        left out from the oldest on, and up to the first that has one, or that is not
        closed.
        """
        since: date | None = None
        for day, last_id in self.closed:
            if last_id > position or (since is not None and day != since):
                break
            since = day + timedelta(days=1)
        if since is None:
            return ALL_DAYS
        return datetime.combine(since, time(), UTC).isoformat()


def closed_days(cursor: Cursor) -> Days:
    """Return which days are over."""
    cursor.execute(CLOSED)
    return Days(tuple(cursor.fetchall()))


def unread_since(cursor: Cursor, group_ids: Sequence[int]) -> str:
    """Return the first day with messages that one of these groups has not read."""
    cursor.execute(READ_BY, {"groups": list(group_ids)})
    read = Days(tuple(cursor.fetchall()))
    return read.since(max((last_id for _day, last_id in read.closed), default=0))
