"""Reprocessed: when a rule of PGQUEUE["REPROCESS"] has redriven a job."""

from __future__ import annotations

from datetime import datetime

from django_pgqueue.operators.human import in_utc

# The header that queues/dead_letters.py writes.
HEADER = "pgqueue.reprocessed_at"


def reprocessed_at(said: object) -> datetime | None:
    """Return the moment that the header says, in UTC; None: there is none to read."""
    try:
        return in_utc(datetime.fromisoformat(said)) if isinstance(said, str) else None
    except (ValueError, OverflowError):
        return None
