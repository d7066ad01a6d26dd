"""Timetables: when a schedule's row is due, and in which state it is.

withdrawn   the code that was migrated last does not declare it any more
paused      somebody has paused it
faulty      it cannot be read, or its tick cannot be issued
overdue     a tick has been due for a while, and no worker issues it
active      it has ticks
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice

from django_pgqueue.exceptions import ScheduleError
from django_pgqueue.schedules.store import ScheduleRow
from django_pgqueue.timetable.expression import Expression
from django_pgqueue.timetable.ticks import Cron, Every, Timetable
from django_pgqueue.timetable.zones import find_zone

STATES = ("active", "overdue", "faulty", "paused", "withdrawn")

# The first of these columns that is not NULL says why a schedule rests.
RESTS = (("withdrawn", "withdrawn_at"), ("paused", "paused_at"), ("faulty", "error"))

# A worker that leads issues ticks at once, and another one steps in after seconds.
OVERDUE = timedelta(seconds=60)


def state_of(row: ScheduleRow, now: datetime) -> str:
    """Return the state of a schedule at *now*, by the database's clock."""
    for state, column in RESTS:
        if getattr(row, column) is not None:
            return state
    is_late = row.next_tick is not None and row.next_tick < now - OVERDUE
    return "overdue" if is_late else "active"


@lru_cache(maxsize=1_000)
def timetable(expression: str | None, every_seconds: int | None, tz: str) -> Timetable:
    """
    Return the timetable that these columns of a schedule say.

    Raises:
        ScheduleError: They say none.
    """
    if every_seconds is not None:
        return Every(timedelta(seconds=every_seconds))
    if expression is None:
        raise ScheduleError("A schedule needs a cron expression or a period.")
    return Cron(Expression.parse(expression), find_zone(tz))


def timetable_of(row: ScheduleRow) -> Timetable:
    """Return the timetable of a schedule's row; as timetable()."""
    return timetable(row.expression, row.every_seconds, row.tz)


def next_ticks(table: Timetable, after: datetime, count: int) -> list[datetime]:
    """Return the next *count* ticks after *after*, in UTC; fewer, if no more come."""
    return list(islice(table.after(after), count))
