"""
Label hours: what jobs took by tag and by lane, an hour a row.

Written with the hours of tasks, whole, so that a run can be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.trusted_clock import TRUSTED_NOW

COLUMNS = ("hour", "queue", "kind", "label", "jobs", "worker_seconds")

# Locks: row locks on what is replaced, until the caller's transaction ends; so below.
CLEAR = "DELETE FROM pgqueue_label_hour WHERE hour = ANY(%(hours)s::timestamptz[])"

STORE = f"""
INSERT INTO pgqueue_label_hour ({", ".join(COLUMNS)})
SELECT {", ".join(COLUMNS)}
  FROM unnest(%(hour)s::timestamptz[], %(queue)s::text[], %(kind)s::text[],
              %(label)s::text[], %(jobs)s::bigint[], %(worker_seconds)s::float8[])
       AS measured({", ".join(COLUMNS)})
"""

FORGET = f"""
DELETE FROM pgqueue_label_hour WHERE hour < {TRUSTED_NOW} - %(keep)s::interval
"""


def replace(
    cursor: Cursor, hours: Sequence[datetime], rows: Sequence[Sequence[Any]]
) -> None:
    """Write *rows*, each with the values of COLUMNS, in place of those of *hours*."""
    cursor.execute(CLEAR, {"hours": list(hours)})
    if rows:
        columns = map(list, zip(*rows, strict=True))
        cursor.execute(STORE, dict(zip(COLUMNS, columns, strict=True)))


def forget(cursor: Cursor, keep: timedelta) -> None:
    """Delete the hours older than *keep*."""
    cursor.execute(FORGET, {"keep": keep})
