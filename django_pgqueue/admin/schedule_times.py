"""Times of schedules as people see them: the next ticks, by two clocks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue.admin import moments
from django_pgqueue.exceptions import ScheduleError
from django_pgqueue.operators import human
from django_pgqueue.schedules.timetables import next_ticks, timetable
from django_pgqueue.timetable.shifts import Shift, shift
from django_pgqueue.timetable.ticks import Timetable
from django_pgqueue.timetable.zones import find_zone

# Ticks to come that a page shows.
SHOWN_TICKS = 5


@dataclass(frozen=True, slots=True)
class NextTick:
    """One tick to come."""

    iso: str
    local: str  # By the schedule's clock.
    utc: str
    relative: str
    note: str  # What a change of the clocks does to it.


@dataclass(frozen=True, slots=True)
class Preview:
    """When a timetable is due."""

    when: str
    tz: str
    ticks: list[NextTick]
    has_notes: bool


def zone_of(row: Any) -> tzinfo:
    """Return the zone of a schedule's row; UTC, where it is none."""
    try:
        return find_zone(row.tz)
    except ScheduleError:
        return UTC


def preview(row: Any, now: datetime) -> Preview | None:
    """
    Return the next ticks of a row or a definition; None: unreadable.

    Args:
        row: With expression, every_seconds and tz.
        now: By the database's clock.
    """
    try:
        table = timetable(row.expression, row.every_seconds, row.tz)
    except ScheduleError:
        return None
    now = human.in_utc(now)
    zone = zone_of(row)
    due = list(next_ticks(table, now, SHOWN_TICKS))
    has_seconds = any(tick.second for tick in due)
    ticks = [
        NextTick(
            iso=tick.isoformat(),
            local=moments.by_clock(tick, zone, has_seconds=has_seconds),
            utc=moments.by_clock(tick, UTC, has_seconds=has_seconds),
            relative=human.distance(tick, now),
            note=_note(table, tick),
        )
        for tick in due
    ]
    return Preview(
        human.timetable(row), row.tz, ticks, any(tick.note for tick in ticks)
    )


def reckoned(row: Any) -> datetime | None:
    """Return when a row without a next tick is due, as the scheduler will reckon it."""
    try:
        table = timetable(row.expression, row.every_seconds, row.tz)
    except ScheduleError:
        return None
    after = [row.ticks_from, *([row.last_tick] if row.last_tick else [])]
    return table.next_after(max(map(human.in_utc, after)))


def _note(table: Timetable, tick: datetime) -> str:
    mark = shift(table, tick)
    return "" if mark is None else _told(mark)


def _told(mark: Shift) -> str:
    if mark.kind == "first":
        return _("The clock shows this time twice: the first one.")
    if mark.kind == "second":
        return _("The clock shows this time twice: the second one.")
    if mark.collapsed == 1:
        return _("The clock skips its time: right after that.")
    return ngettext(
        "The clock skips its time: %(count)d tick is one.",
        "The clock skips their times: %(count)d ticks are one.",
        mark.collapsed,
    ) % {"count": mark.collapsed}
