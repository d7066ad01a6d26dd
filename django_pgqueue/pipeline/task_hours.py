"""
Task hours: what the pipeline job `metrics` has counted, an hour a row.

Rows are replaced whole, so that a run can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_pgqueue.postgres.cursor import Cursor, one_row

# Rows of one statement.
BATCH_ROWS = 1_000

KEY = ("hour", "queue", "task")
COUNTS = (
    "started",
    "succeeded",
    "failed",
    "retried",
    "dead",
    "cancelled",
    "expired",
    "crashed",
)
TIMES = (
    "wait_p50",
    "wait_p95",
    "wait_p99",
    "oldest_wait",
    "run_p50",
    "run_p95",
    "run_p99",
    "worker_seconds",
)
COLUMNS = (*KEY, *COUNTS, *TIMES)

# Locks: row locks on what is replaced, until the caller's transaction ends.
# A dead letter that was redriven since is counted no more, though it did die: so dead
# never shrinks.
STORE = f"""
INSERT INTO pgqueue_task_hour AS h ({", ".join(COLUMNS)}, computed_at)
SELECT {", ".join(COLUMNS)}, clock_timestamp()
  FROM unnest(%(hour)s::timestamptz[], %(queue)s::text[], %(task)s::text[],
              {", ".join(f"%({name})s::bigint[]" for name in COUNTS)},
              {", ".join(f"%({name})s::float8[]" for name in TIMES)})
       AS counted({", ".join(COLUMNS)})
ON CONFLICT (hour, queue, task) DO UPDATE
   SET {
    ", ".join(
        f"{name} = greatest(h.dead, EXCLUDED.dead)"
        if name == "dead"
        else f"{name} = EXCLUDED.{name}"
        for name in (*COUNTS, *TIMES)
    )
}, computed_at = EXCLUDED.computed_at
"""

# Locks: none. What was counted of each hour: of the archive, and of dead letters.
COUNTED = """
SELECT hour, sum(succeeded + cancelled + expired)::bigint, sum(dead)::bigint
  FROM pgqueue_task_hour WHERE hour >= %(since)s GROUP BY hour
"""
LAST = "SELECT max(hour) FROM pgqueue_task_hour"

# Locks: row locks on the deleted rows.
FORGET_HOURS = """
DELETE FROM pgqueue_task_hour
 WHERE hour < statement_timestamp() - %(keep)s::interval
"""


class Counted(NamedTuple):
    """How many jobs of an hour were counted."""

    archived: int
    dead: int


def store(cursor: Cursor, rows: Iterable[Sequence[Any]]) -> int:
    """Write *rows*, each with the values of COLUMNS; return how many."""
    ordered = sorted(rows, key=lambda row: tuple(row[: len(KEY)]))
    for start in range(0, len(ordered), BATCH_ROWS):
        columns = zip(*ordered[start : start + BATCH_ROWS], strict=True)
        cursor.execute(STORE, dict(zip(COLUMNS, map(list, columns), strict=True)))
    return len(ordered)


def counted(cursor: Cursor, since: datetime) -> dict[datetime, Counted]:
    """Return what was counted of each hour from *since* on."""
    cursor.execute(COUNTED, {"since": since})
    return {hour: Counted(archived, dead) for hour, archived, dead in cursor.fetchall()}


def last(cursor: Cursor) -> datetime | None:
    """Return the latest hour that was counted, or None."""
    cursor.execute(LAST)
    hour: datetime | None = one_row(cursor)[0]
    return hour


def forget(cursor: Cursor, keep: timedelta) -> int:
    """Delete the hours older than *keep*; return how many rows."""
    cursor.execute(FORGET_HOURS, {"keep": keep})
    return int(cursor.rowcount)
