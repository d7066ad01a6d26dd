"""
Reprocess: which dead letters a rule sends back to their queues.

They are read in the order in which they gave up, a bounded number at a time, and each
look goes on where the one before ended: so it costs the same, however many there are.
What is found is redriven by queues/dead_letters.py, like any other.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from django_pgqueue.postgres.cursor import Cursor

# Dead letters that one look reads.
LOOK_ROWS_MAX = 1_000

# Locks: none. The class of an error is compared as by operators/filters.py, and last:
# its column is large. The comparison of rows bounds the scan of the index, which has
# no id: what gave up at the same moment is sorted by it. With two plain bounds, the
# planner takes them for a narrow range and sorts all of it.
LOOK = """
SELECT id, finished_at,
       NOT headers ? 'pgqueue.reprocessed_at'
       AND coalesce(task = %(task)s::text, true)
       AND coalesce(reason = %(reason)s::text, true)
       AND (%(error)s::text IS NULL
            OR coalesce(class = %(error)s::text, false)
            OR coalesce(right(class, length(%(end)s::text)) = %(end)s::text, false))
  FROM pgqueue_dead_letter
 CROSS JOIN LATERAL (
       SELECT coalesce(errors->-1->>'type', errors->-1->>'kind') AS class) latest
 WHERE (finished_at, id)
       > (greatest(%(floor)s::timestamptz,
                   statement_timestamp() - %(max_age)s::interval),
          %(after_id)s::bigint)
   AND finished_at <= statement_timestamp() - %(ago)s::interval
 ORDER BY finished_at, id LIMIT %(limit)s
"""


# Locks: none, until the transaction ends. Without statistics, PostgreSQL 14 would sort
# all dead letters; along the index, it sorts what gave up at the same moment.
NO_SORT = "SELECT set_config('enable_sort', 'off', true)"

# Locks: none. The latest, along the index of finished_at.
AGAIN = """
SELECT count(*) FILTER (WHERE again) AS jobs FROM (
    SELECT headers ? 'pgqueue.reprocessed_at' AS again FROM pgqueue_dead_letter
     WHERE finished_at > statement_timestamp() - %(period)s::interval
     ORDER BY finished_at DESC LIMIT %(limit)s) fresh
"""


class Floor(NamedTuple):
    """Where a look ended: nothing up to it is looked at again."""

    finished_at: datetime | None  # None: from the oldest on.
    id: int


START = Floor(None, 0)


class Found(NamedTuple):
    """
    What one look has found.

    Attributes:
        ids: Of dead letters that the rule means.
        floor: That of the next look.
        is_all: Whether there are no more.
    """

    ids: list[int]
    floor: Floor
    is_all: bool


def sort_no_table(cursor: Cursor) -> None:
    """Let look() go along its index until the transaction ends."""
    cursor.execute(NO_SORT)


def look(cursor: Cursor, rule: Any, *, floor: Floor, most: int) -> Found:
    """
    Return the next dead letters that match a rule, and that no rule has redriven.

    Args:
        cursor: An open cursor.
        rule: With the name of a task, the reason, and the class of the last error (by
            its whole name or without its module), each None for any; and with how long
            ago they must have given up (after), and may have (max_age).
        floor: Where the last look ended.
        most: How many to return.
    """
    params = {
        "task": rule.task,
        "reason": rule.reason,
        "error": rule.error,
        "end": None if rule.error is None or "." in rule.error else f".{rule.error}",
        "ago": rule.after,
        "max_age": rule.max_age,
        "floor": floor.finished_at,
        "after_id": floor.id,
        "limit": LOOK_ROWS_MAX,
    }
    cursor.execute(LOOK, params)
    rows, ids = cursor.fetchall(), list[int]()
    for job_id, finished_at, is_meant in rows:
        if is_meant and len(ids) == most:
            return Found(ids, floor, is_all=False)
        if is_meant:
            ids.append(job_id)
        floor = Floor(finished_at, job_id)
    return Found(ids, floor, is_all=len(rows) < LOOK_ROWS_MAX)
