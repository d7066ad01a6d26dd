"""
Bulk acts: something is done to everything in a range, chunk by chunk.

A row stores the range and the position in it; operators/bulk_acts.py does the chunks.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NamedTuple

from django_pgqueue.postgres.cursor import Cursor, record, value

# The hint that one was asked for; '!' is in no queue's name.
HINT = "!bulk"

# Locks: none but of the row that is new.
CREATE = """
INSERT INTO pgqueue_bulk_act (verb, filters, asked_by, reason, per_second, counted,
                              is_more, top, shown_at, position)
VALUES (%(verb)s, %(filters)s::jsonb, %(by)s, %(reason)s, %(per_second)s, %(counted)s,
        %(is_more)s, %(top)s, %(shown_at)s, %(position)s)
RETURNING id
"""

# Locks: none. Along the index of the open ones.
DUE = """
SELECT extract(epoch FROM next_at - statement_timestamp())::float8
  FROM pgqueue_bulk_act WHERE state IN ('waiting', 'running')
 ORDER BY next_at, id LIMIT 1
"""


class Extent(NamedTuple):
    """
    What an act covers.

    Attributes:
        rows: How many rows or messages were counted.
        is_more: Whether there may be more.
        top: The highest id that is included.
        at: When they were counted, by the database's clock; dead letters that appear
            later are not included.
        first: When the first of them happened; None: there is none.
        latest: When the latest did.
        position: The id after which the act begins.
    """

    rows: int
    is_more: bool
    top: int
    at: datetime
    first: datetime | None = None
    latest: datetime | None = None
    position: int = 0


class Chunk(NamedTuple):
    """The result of a chunk: up to which id, how many rows, and why some were left."""

    position: int
    done: int
    passed: int = 0
    error: str = ""


def create(
    cursor: Cursor,
    verb: str,
    filters: dict[str, Any],
    extent: Extent,
    *,
    by: str,
    reason: str = "",
    per_second: int | None = None,
) -> int:
    """Store an act, and return its id; the caller commits, and sends HINT then."""
    params = {
        "verb": verb,
        "filters": json.dumps(filters),
        "by": by,
        "reason": reason,
        "per_second": per_second,
        "counted": extent.rows,
        "is_more": extent.is_more,
        "top": extent.top,
        "shown_at": extent.at,
        "position": extent.position,
    }
    return int(value(cursor, CREATE, **params))


def due_seconds(cursor: Cursor) -> float | None:
    """Return in how many seconds a chunk is due; None: no act is open."""
    return record(float, cursor, DUE)
