"""Spans: the steps of time that a chart has, and how they are named along it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.functional import Promise

HOUR_SECONDS = 3_600

# Spans of a chart at least, where less was counted yet.
SPANS_LEAST = 12

# Up to so many hours, hours are named along the time; up to so many, days of the week.
HOURS_NAMED_MAX, WEEKDAYS_NAMED_MAX = 48, 168


@dataclass(frozen=True, slots=True)
class Period:
    """How far back a chart goes, and in which steps."""

    label: str | Promise
    hours: int
    step_hours: int


def starts(period: Period, now: int, first: int | None = None) -> list[int]:
    """
    Return when the spans of *period* begin, in seconds since 1970; the last has *now*.

    Args:
        period: How far back.
        now: The clock.
        first: The first hour that was ever counted: before it, few spans are empty.
    """
    step = period.step_hours * HOUR_SECONDS
    end = now // step * step + step
    begin = end - period.hours * HOUR_SECONDS
    if first is not None:
        begin = max(begin, min(first // step * step, end - SPANS_LEAST * step))
    return list(range(begin, end, step))


def local(epoch: int) -> datetime:
    """Return so many seconds after 1970 in the time zone of the project."""
    return datetime.fromtimestamp(epoch, timezone.get_current_timezone())


def named(at: Sequence[datetime], step_hours: int) -> tuple[list[str], list[bool]]:
    """Return how each span is named along the time, and which may have their name."""
    hours = len(at) * step_hours
    if hours <= HOURS_NAMED_MAX:
        every = 2 if hours <= SPANS_LEAST else 4
        return (
            [date_format(moment, "H:i") for moment in at],
            [moment.hour % every == 0 for moment in at],
        )
    pattern = "D j" if hours <= WEEKDAYS_NAMED_MAX else "j M"
    return (
        [date_format(moment, pattern) for moment in at],
        [moment.hour < step_hours for moment in at],
    )


def when(moment: datetime, step_hours: int) -> str:
    """Return from when until when a span is that begins at *moment*."""
    until = moment + timedelta(hours=step_hours)
    if step_hours < 24:
        return f"{date_format(moment, 'D j M, H:i')}\u2013{date_format(until, 'H:i')}"
    return f"{date_format(moment, 'j M')}\u2013{date_format(until, 'j M')}"
