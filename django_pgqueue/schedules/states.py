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

from django_pgqueue.runs.schedules import ScheduleRow

STATES = ("active", "overdue", "faulty", "paused", "withdrawn")

# A worker that leads issues ticks at once, and another one steps in after seconds.
OVERDUE = timedelta(seconds=60)


def state_of(row: ScheduleRow, now: datetime) -> str:
    """Return the state of a schedule at *now*, by the database's clock."""
    if row.withdrawn_at is not None:
        return "withdrawn"
    if row.paused_at is not None:
        return "paused"
    if row.error is not None:
        return "faulty"
    is_late = row.next_tick is not None and row.next_tick < now - OVERDUE
    return "overdue" if is_late else "active"
