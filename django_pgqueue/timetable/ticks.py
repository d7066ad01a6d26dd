"""Ticks: the moments at which a schedule is due, and what clock changes do to them.

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
from typing import Literal, Protocol

from django_pgqueue.timetable.expression import Expression

# No zone has changed twice within so long since 1970.
STEP = timedelta(hours=6)
SECOND = timedelta(seconds=1)


def offset(zone: tzinfo, moment: datetime) -> timedelta:
    """Return what *zone* is ahead of UTC at *moment*."""
    ahead = moment.astimezone(zone).utcoffset()
    assert ahead is not None
    return ahead


def next_change(zone: tzinfo, after: datetime, until: datetime) -> datetime | None:
    """
    Return the first moment after *after*, to *until*, with another offset, or None.

    Args:
        zone: Any; of a fixed offset has none.
        after: In UTC.
        until: In UTC. A year is looked through in ten milliseconds.
    """
    before = offset(zone, after)
    moment = after
    while moment < until:
        moment, last = min(moment + STEP, until), moment
        if offset(zone, moment) != before:
            return _bisected(zone, last, moment, before)
    return None


def _bisected(
    zone: tzinfo, low: datetime, high: datetime, before: timedelta
) -> datetime:
    """Return the first second after *low*, to *high*, that has not the offset."""
    while high - low > SECOND:
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if middle <= low:
            middle = low + SECOND
        if offset(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high.replace(microsecond=0)


def gap_end(zone: tzinfo, wall: datetime) -> datetime | None:
    """
    Return the moment in UTC at which the clock skipped over *wall*.

    None: it did not. A whole day that a zone left out is such a gap.
    """
    # PEP 495: of a time that there is not, fold=0 reckons with the offset before the
    # change, and so comes after it; fold=1 the other way round.
    late = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if late.astimezone(zone).replace(tzinfo=None) == wall:
        return None
    early = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return _bisected(zone, early, late, offset(zone, early))


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
