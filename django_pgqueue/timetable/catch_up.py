"""Catch-up: which of the ticks that are due are issued, and which are dropped.

In the ordinary course one tick is due at a time, and is issued. Several are due after
nobody was there to issue them: all schedulers were down, or the database was. Then the
latest one and those before it, the *missed* ones, fare by the schedule's policy:

    skip     the missed ones are dropped; the latest is issued unless it is over a
             minute late, when it counts as missed, too
    one      the latest is issued, however late; the missed ones are dropped
    all(N)   the latest N are issued, a job for each; older ones are dropped
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import islice
from typing import Literal

from django_pgqueue.exceptions import ScheduleError
from django_pgqueue.timetable.ticks import Timetable, ticks

ALL_MAX = 1_000
ALL = re.compile(r"all\(([0-9]{1,9})\)")

# Of ticks that are dropped, no more are counted: a schedule by the second that nobody
# served for a year has thirty million.
MISSED_MAX = 1_000

# Ticks that are looked at from the beginning, before it is looked from the end.
FEW = 4
SECOND = timedelta(seconds=1)

# What a tick that is skipped when late may be late.
LATE_MAX = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class CatchUp:
    """
    A policy.

    Attributes:
        kind: skip, one or all.
        most: How many ticks are issued at once.
    """

    kind: Literal["skip", "one", "all"]
    most: int = 1

    @classmethod
    def parse(cls, text: object) -> CatchUp:
        """
        Read "skip", "one" or "all(N)", N from 1 to 1,000.

        Raises:
            ScheduleError: It is none of them.
        """
        if text == "skip":
            return cls("skip")
        if text == "one":
            return cls("one")
        found = ALL.fullmatch(text) if isinstance(text, str) else None
        if found is not None and 1 <= int(found[1]) <= ALL_MAX:
            return cls("all", int(found[1]))
        raise ScheduleError(
            f"catch_up={text!r}: it must be 'skip', 'one', or 'all(N)' with N from 1 "
            f"to {ALL_MAX:,}, which says how many missed ticks are made up for."
        )

    def __str__(self) -> str:
        return f"all({self.most})" if self.kind == "all" else self.kind


@dataclass(frozen=True, slots=True)
class Due:
    """
    What is to be done now.

    Attributes:
        issued: The ticks of which each becomes a job, in order; none where the only
            ones are missed.
        latest: The last tick that was due.
        missed: How many are dropped; MISSED_MAX at most.
    """

    issued: tuple[datetime, ...]
    latest: datetime
    missed: int


def find_due(
    timetable: Timetable, after: datetime, now: datetime, catch_up: CatchUp
) -> Due | None:
    """
    Return what is due of the ticks after *after* until *now*; None: nothing is.

    Args:
        timetable: Of the schedule.
        after: The last tick that was dealt with, in UTC.
        now: By the database's clock, in UTC.
        catch_up: The policy.
    """
    found = _latest(timetable, after, now, catch_up.most + MISSED_MAX)
    if not found:
        return None
    latest = found[-1]
    if catch_up.kind == "skip" and now - latest > LATE_MAX:
        issued: list[datetime] = []
    else:
        issued = found[-catch_up.most :]
    missed = min(len(found) - len(issued), MISSED_MAX)
    return Due(tuple(issued), latest, missed)


def _latest(
    timetable: Timetable, after: datetime, now: datetime, most: int
) -> list[datetime]:
    """Return the latest ticks after *after* until *now*, *most* of them at most."""
    found = list(islice(ticks(timetable, after, now), FEW))
    if len(found) < FEW:
        return found  # Nearly always it is one.
    # There may be millions. Look back from now, in windows that grow while they have
    # few; one that has too many begins anew at its last tick, with a small one.
    found, end, span = [], now, timedelta(seconds=most)
    while len(found) < most and after < end:
        start = max(after, end - span)
        some = list(islice(ticks(timetable, start, end), most + 1))
        if len(some) > most:
            end = _last(timetable, some[-1], end)
            span = most * SECOND  # No schedule has two ticks in a second.
            continue
        found = some + found
        end = start
        if 2 * len(some) < most:
            span *= 4
    return found[-most:]


def _last(timetable: Timetable, low: datetime, end: datetime) -> datetime:
    """Return the last tick until *end*, given an earlier one, *low*."""
    high = end
    while high - low > SECOND:
        middle = low + (high - low) / 2
        tick = timetable.next_after(middle)
        if tick is None or tick > end:
            high = middle
        else:
            low = tick
    tick = timetable.next_after(low)
    return low if tick is None or tick > end else tick


MILLISECOND = timedelta(milliseconds=1)


def jitter(schedule: str, tick: datetime, over: timedelta) -> timedelta:
    """
    Return a delay of less than *over*, made of the schedule's name and the tick.

    Two schedulers that meet the same tick agree; two schedules at the same time, or
    two ticks of one, differ.

    Args:
        schedule: Its name.
        tick: When it is due.
        over: The longest delay; nothing: none.
    """
    if over < MILLISECOND:
        return timedelta()
    text = f"{schedule}\x1f{tick.astimezone(UTC).isoformat()}"
    number = int(sha256(text.encode()).hexdigest()[:15], 16)
    return number % (over // MILLISECOND) * MILLISECOND
