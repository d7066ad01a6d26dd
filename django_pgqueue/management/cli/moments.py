"""Moments: times as people read them, by the database's clock."""

from __future__ import annotations

from datetime import UTC, datetime

from django.utils import timezone

UNITS = ((86_400 * 365, "y"), (86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def span(seconds: float) -> str:
    """Return a duration in its largest fitting unit: 40 s, 5 m, 3 h, 12 d."""
    seconds = abs(seconds)
    for size, unit in UNITS:
        # From two of a unit on: 90 s says more than 1 m.
        if round(seconds / size) >= 2 or size == 1:
            return f"{seconds / size:.0f} {unit}"
    raise AssertionError("the last unit fits everything")


def since(moment: datetime | None, clock: datetime) -> str:
    """Return "5 m ago" or "in 5 m"; '' for None."""
    if moment is None:
        return ""
    seconds = (clock - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(seconds)}"


def full(moment: datetime | None, clock: datetime) -> str:
    """Return the time to the millisecond, with its zone, and how long ago it is."""
    if moment is None:
        return ""
    return (
        f"{moment.isoformat(sep=' ', timespec='milliseconds')} ({since(moment, clock)})"
    )


def iso(moment: datetime | None) -> str | None:
    """Return the time for machines."""
    return None if moment is None else moment.isoformat()


def utc(moment: datetime) -> datetime:
    """Return *moment* in UTC: without a zone, it is one of the project's."""
    if timezone.is_naive(moment):
        moment = timezone.make_aware(moment, timezone.get_default_timezone())
    return moment.astimezone(UTC)
