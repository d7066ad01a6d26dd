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
from itertools import takewhile
from typing import Protocol

from django_pgqueue.timetable.changes import gap_end, next_change, offset
from django_pgqueue.timetable.expression import Expression

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Timetable(Protocol):
    """Something that is due again and again."""

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first tick after *moment*, in UTC; None: there is none."""

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the ticks after *moment*, in UTC, for less than asking for each."""


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
        return next(self.after(moment), None)

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the ticks after *moment*, in UTC."""
        moment = moment.astimezone(UTC)
        if self.expression.follows_time:
            return self._by_time(moment)
        return self._by_wall(moment)

    def _by_wall(self, moment: datetime) -> Iterator[datetime]:
        wall = moment.astimezone(self.zone).replace(tzinfo=None)
        for time in self.expression.times(wall):
            tick = gap_end(self.zone, time)
            if tick is None:
                tick = time.replace(tzinfo=self.zone, fold=0).astimezone(UTC)
            # Not of a time that comes for the second time now.
            if tick > moment:
                yield tick
                moment = tick

    def _by_time(self, moment: datetime) -> Iterator[datetime]:
        """Go from one change of the clock to the next; between two, all is even."""
        while True:
            ahead = offset(self.zone, moment)
            for time in self.expression.times((moment + ahead).replace(tzinfo=None)):
                tick = time.replace(tzinfo=UTC) - ahead
                change = next_change(self.zone, moment, tick)
                if change is not None:
                    break
                yield tick
                moment = tick
            else:
                return
            # The moment of the change itself may be a tick, by its new time.
            wall = (change + offset(self.zone, change)).replace(tzinfo=None)
            if next(self.expression.times(wall - MICROSECOND), None) == wall:
                yield change
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

    def next_after(self, moment: datetime) -> datetime:
        """Return the first tick after *moment*, in UTC."""
        return EPOCH + ((moment - EPOCH) // self.period + 1) * self.period

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the ticks after *moment*, in UTC."""
        tick = self.next_after(moment)
        while True:
            yield tick
            tick += self.period


def ticks(timetable: Timetable, after: datetime, until: datetime) -> Iterator[datetime]:
    """Return the ticks after *after* until *until*, both in UTC."""
    return takewhile(lambda tick: tick <= until, timetable.after(after))
