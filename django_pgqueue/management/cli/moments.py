"""Moments as the commands tell them: to the millisecond."""

from __future__ import annotations

from datetime import datetime

from django_pgqueue.operators.human import distance


def full(moment: datetime | None, clock: datetime) -> str:
    """Return the time to the millisecond, with its zone, and how long ago it is."""
    if moment is None:
        return ""
    exact = moment.isoformat(sep=" ", timespec="milliseconds")
    return f"{exact} ({distance(moment, clock)})"
