"""
Ticks: the moments at which a schedule is due.

What happens when clocks are put forward or back is what Debian's cron does. An entry
with fixed hours is due once a day: what the clock skips is due right after the gap,
and what it shows twice, the first time only. Several ticks of one gap are one. An entry
whose hours are `*` or `*/n` follows elapsed time: it is due whenever the clock on the
wall shows its minutes, so not at times that were skipped, and twice at those that come
twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol

from django_pgqueue.timetable.changes import gap_end, next_change, offset
from django_pgqueue.timetable.expression import Expression

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Timetable(Protocol):
    """Something that is due again and again."""

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first tick after *moment*, in UTC; None: there is none."""


@dataclass(frozen=True, slots=True)
class Cron:
    """
    Due when the clock of *zone* shows what *expression* says.

    Attributes:
        expression: Which times.
        zone: Whose clock.
    """

    expression: Expression
    zone: tzinfo

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first tick after *moment*, in UTC; None: there is none."""
        moment = moment.astimezone(UTC)
        if self.expression.follows_time:
            return self._next_by_time(moment)
        return self._next_by_wall(moment)

    def _next_by_wall(self, moment: datetime) -> datetime | None:
        wall = moment.astimezone(self.zone).replace(tzinfo=None)
        for time in self.expression.times(wall):
            tick = gap_end(self.zone, time)
            if tick is None:
                tick = time.replace(tzinfo=self.zone, fold=0).astimezone(UTC)
            # Not of a time that comes for the second time now.
            if tick > moment:
                return tick
        return None

    def _next_by_time(self, moment: datetime) -> datetime | None:
        """Go from one change of the clock to the next; between two, all is even."""
        while True:
            ahead = offset(self.zone, moment)
            wall = (moment + ahead).replace(tzinfo=None)
            time = next(self.expression.times(wall), None)
            if time is None:
                return None
            tick = time.replace(tzinfo=UTC) - ahead
            change = next_change(self.zone, moment, tick)
            if change is None:
                return tick
            # The moment of the change itself may be a tick, by its new time.
            moment = change - MICROSECOND
            ahead = offset(self.zone, change)
            wall = (moment + ahead).replace(tzinfo=None)
            time = next(self.expression.times(wall), None)
            if time == (change + ahead).replace(tzinfo=None):
                return change
            moment = change


@dataclass(frozen=True, slots=True)
class Every:
    """
    Due every so many seconds, whatever clocks are put to.

    Ticks are counted from 1970 on, so that all processes agree on them.

    Attributes:
        period: Between two ticks; whole seconds.
    """

    period: timedelta

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first tick after *moment*, in UTC."""
        return EPOCH + ((moment - EPOCH) // self.period + 1) * self.period


def ticks(timetable: Timetable, after: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the ticks after *after* until *until*, both in UTC."""
    tick = timetable.next_after(after)
    while tick is not None and tick <= until:
        yield tick
        tick = timetable.next_after(tick)
