"""What the doctor asks of sequences: would one give what is in use already?"""

from __future__ import annotations

from collections.abc import Iterator

from django_pgqueue.conf import Settings
from django_pgqueue.operators.findings import Finding, finding, named
from django_pgqueue.postgres.counters import MESSAGES, counters, repair_sql
from django_pgqueue.postgres.cursor import Cursor


def sequences(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Has a restore, or a TRUNCATE, left one behind what its rows have?"""
    behind = [each for each in counters(cursor) if each.is_behind]
    told = [
        f"{each.column} (at {each.last:,}, in use up to {each.used:,})"
        for each in behind
    ]
    way_out = " ".join(["Run:", *(repair_sql(cursor, each) for each in behind)])
    if any(each.column == MESSAGES for each in behind):
        way_out += (
            " Groups may have skipped messages that were published meanwhile; to read "
            "them: manage.py pgqueue seek TOPIC/GROUP --to earliest"
        )
    yield finding(
        check="sequences",
        wrong=behind,
        what=f"Sequences are behind what is in use, as after a restore without them: "
        f"{named(told)}. New rows collide with old ones, and groups read nothing of "
        f"what is published.",
        right="No sequence is behind what is in use.",
        severity="error",
        value=[each.column for each in behind],
        way_out=way_out,
    )
