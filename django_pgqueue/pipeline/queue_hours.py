"""
Queue hours: what the jobs of a queue took, hour by hour; of the rows of TaskHour.

Of several tasks, an hour's p95 is the highest of theirs: no more than 5 % of the jobs
waited for longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from django_pgqueue.pipeline.task_hour_charts import ROWS_MAX
from django_pgqueue.postgres.cursor import Cursor

# Locks: none. One walk along the unique index, latest hour first, as far as ROWS_MAX.
# The hour that is under way is left out: it is not whole.
HOURS = """
SELECT queue, hour, sum(started)::bigint,
       sum(succeeded + cancelled + expired + dead)::bigint, sum(expired + dead)::bigint,
       max(wait_p95), sum(worker_seconds)::float8
  FROM (SELECT * FROM pgqueue_task_hour
         WHERE hour >= date_trunc('hour', clock_timestamp()) - %(days)s * interval '1 d'
           AND hour < date_trunc('hour', clock_timestamp())
         ORDER BY hour DESC LIMIT %(limit)s) looked_at
 WHERE %(queue)s::text IN ('', queue)
 GROUP BY queue, hour ORDER BY queue, hour
"""


class QueueHour(NamedTuple):
    """
    An hour of a queue.

    Attributes:
        hour: When it began.
        started: Deliveries, of the jobs that ended in it.
        ended: Jobs, in whatever way.
        failed: Of them, those that became dead letters or expired.
        wait_p95: Seconds from due until start; None: nothing was measured.
        worker_seconds: How long threads were busy with them.
    """

    hour: datetime
    started: int
    ended: int
    failed: int
    wait_p95: float | None
    worker_seconds: float


def hours(
    cursor: Cursor, *, days: int, queue: str = "", limit: int = ROWS_MAX
) -> dict[str, Sequence[QueueHour]]:
    """
    Return the hours of each queue that had any, the oldest first.

    Args:
        cursor: An open cursor.
        days: How far back.
        queue: Of this one alone; "": of all.
        limit: Rows that are read, the latest.
    """
    cursor.execute(HOURS, {"days": days, "queue": queue, "limit": limit})
    found: dict[str, list[QueueHour]] = {}
    for name, *values in cursor.fetchall():
        found.setdefault(name, []).append(QueueHour(*values))
    return dict(found)
