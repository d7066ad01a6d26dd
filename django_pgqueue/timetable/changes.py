"""Changes: when a zone puts its clocks forward or back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

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
