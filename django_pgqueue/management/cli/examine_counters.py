"""What the doctor asks of sequences: would one give what is in use already?"""

from __future__ import annotations

from collections.abc import Iterator

from django_pgqueue.conf import Settings
from django_pgqueue.operators.findings import Finding, finding, named
from django_pgqueue.postgres.counters import counters
from django_pgqueue.postgres.cursor import Cursor


def sequences(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Has a restore, or a TRUNCATE, left one behind what its rows have?"""
    behind = [each for each in counters(cursor) if each.is_behind]
    told = [
        f"{each.column} (at {each.last:,}, in use up to {each.used:,})"
        for each in behind
    ]
    yield finding(
        check="sequences",
        wrong=behind,
        what=f"Sequences are behind what is in use, as after a restore without them: "
        f"{named(told)}. New rows collide with old ones, and groups read nothing of "
        f"what is published.",
        right="No sequence is behind what is in use.",
        severity="error",
        value=[each.column for each in behind],
        way_out="manage.py pgqueue sequences repair",
    )
