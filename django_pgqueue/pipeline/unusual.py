"""
Unusual durations: tasks that take longer of late than they did before.

Compared are medians of hours, which one slow hour does not move: those of the latest
24 hours with those of the days before. What lies above all that was usual, by three
times the span of the middle half, and by half at least, is told.
"""

from __future__ import annotations

from typing import NamedTuple

from django_pgqueue.pipeline.task_hour_charts import ROWS_MAX
from django_pgqueue.postgres.cursor import Cursor

RECENT_HOURS = 24

# Below these, chance alone looks unusual.
RECENT_JOBS_MIN, HOURS_BEFORE_MIN = 20, 24

SPANS_ABOVE, TIMES_AT_LEAST = 3.0, 1.5

# Tasks that are told.
SHOWN_MAX = 100

# Locks: none. One walk along the unique index, latest hour first, as far as ROWS_MAX.
UNUSUAL = """
WITH hours AS (
    SELECT queue, task, started, run_p50, run_p95,
           hour >= date_trunc('hour', clock_timestamp())
                   - %(recent)s * interval '1 h' AS is_recent
      FROM (SELECT * FROM pgqueue_task_hour
             WHERE hour >= date_trunc('hour', clock_timestamp())
                           - %(days)s * interval '1 d'
             ORDER BY hour DESC LIMIT %(limit)s) looked_at
     WHERE run_p50 IS NOT NULL AND %(queue)s::text IN ('', queue)),
medians AS (
    SELECT queue, task, mark.name,
           sum(started) FILTER (WHERE is_recent) AS jobs,
           count(*) FILTER (WHERE NOT is_recent) AS hours_before,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY mark.seconds)
               FILTER (WHERE is_recent) AS lately,
           percentile_cont(ARRAY[0.25, 0.5, 0.75])
               WITHIN GROUP (ORDER BY mark.seconds)
               FILTER (WHERE NOT is_recent) AS before
      FROM hours CROSS JOIN LATERAL (
           VALUES ('p50', run_p50), ('p95', run_p95)) AS mark(name, seconds)
     GROUP BY queue, task, mark.name)
SELECT queue, task, name, jobs::bigint, hours_before, lately, before[2],
       before[3] + %(spans)s * (before[3] - before[1])
  FROM medians
 WHERE jobs >= %(jobs)s AND hours_before >= %(hours)s
   AND lately > before[3] + %(spans)s * (before[3] - before[1])
   AND lately > before[2] * %(times)s
 ORDER BY lately / nullif(before[2], 0) DESC NULLS FIRST, queue, task, name
 LIMIT %(shown)s
"""


class Unusual(NamedTuple):
    """
    A task that takes longer; times in seconds.

    Attributes:
        queue: In which.
        task: Its name.
        mark: "p50" or "p95": of which times the medians are.
        jobs: Deliveries in the latest 24 hours.
        hours_before: Hours that it is compared with.
        lately: The median of the latest 24 hours.
        before: The median of the hours before.
        limit: What would still have been usual.
    """

    queue: str
    task: str
    mark: str
    jobs: int
    hours_before: int
    lately: float
    before: float
    limit: float


def unusual(
    cursor: Cursor, *, days: int, queue: str = "", limit: int = ROWS_MAX
) -> list[Unusual]:
    """
    Return what takes longer than usual, by how many times the most first.

    Args:
        cursor: An open cursor.
        days: How far back what is usual is looked for.
        queue: In this one alone; "": in all.
        limit: Rows that are read, the latest.
    """
    cursor.execute(
        UNUSUAL,
        {
            "days": days,
            "queue": queue,
            "limit": limit,
            "recent": RECENT_HOURS,
            "jobs": RECENT_JOBS_MIN,
            "hours": HOURS_BEFORE_MIN,
            "spans": SPANS_ABOVE,
            "times": TIMES_AT_LEAST,
            "shown": SHOWN_MAX,
        },
    )
    return [Unusual(*row) for row in cursor.fetchall()]
