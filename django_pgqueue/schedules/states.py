"""
States of schedules: derived from the row, and shown by the admin and the commands.

    withdrawn   the code that was migrated last does not declare it any more
    paused      somebody has paused it
    faulty      it cannot be read, or its tick cannot be issued
    overdue     a tick has been due for a while, and no worker issues it
    active      it has ticks
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django_pgqueue.schedules.store import ScheduleRow

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
