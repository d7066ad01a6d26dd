"""Jitter: how much later than its tick a job is due, the same on every machine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256

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
