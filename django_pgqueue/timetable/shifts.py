"""Shifts: what a change of the clocks does to a tick."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django_pgqueue.timetable.changes import offset
from django_pgqueue.timetable.ticks import Cron, Timetable

# No clock is put forward by more: Samoa left out a day.
GAP_MAX = timedelta(days=1)
SECOND = timedelta(seconds=1)

# Of an entry by the second, a gap of an hour has 3,600 times.
COUNTED_MAX = 100


@dataclass(frozen=True, slots=True)
class Shift:
    """
    Why a tick is not simply when the clock shows its time.

    Attributes:
        kind: "moved": the clock skips its time, and it is right after the gap.
            "first": the clock shows its time twice, and this is the first.
            "second": this is the second, of an entry that is due at both.
        collapsed: Of a tick that was moved: how many times of the gap it stands for,
            its own included; COUNTED_MAX at most.
    """

    kind: Literal["moved", "first", "second"]
    collapsed: int = 1


def shift(timetable: Timetable, tick: datetime) -> Shift | None:
    """
    Return what a change of the clocks does to *tick*, or None.

    Args:
        timetable: Whose tick it is; an interval has no shifts.
        tick: As its next_after() returned it.
    """
    if not isinstance(timetable, Cron):
        return None
    zone = timetable.zone
    wall = tick.astimezone(zone)
    if wall.replace(fold=0).utcoffset() != wall.replace(fold=1).utcoffset():
        if offset(zone, tick) == wall.replace(fold=0).utcoffset():
            return Shift("first")
        return Shift("second")
    if timetable.expression.follows_time:
        return None
    gap = offset(zone, tick) - offset(zone, tick - SECOND)
    if not timedelta(0) < gap <= GAP_MAX:
        return None
    end = wall.replace(tzinfo=None)
    count = 0
    for time in timetable.expression.times(end - gap - SECOND):
        if time > end or count == COUNTED_MAX:
            break
        # A time at the end of the gap is no skipped one, and is the same tick.
        count += 1
    only = next(timetable.expression.times(end - SECOND), None)
    if count == 1 and only == end:
        return None
    return Shift("moved", count) if count else None
