"""Costs: how long threads were busy, by task; and by tag and lane, of label hours."""

from __future__ import annotations

from typing import Literal, NamedTuple

from django_pgqueue.pipeline.task_hour_charts import ROWS_MAX
from django_pgqueue.postgres.cursor import Cursor

By = Literal["task", "tag", "lane"]
BY: tuple[By, ...] = ("task", "tag", "lane")

HOUR_SECONDS = 3_600.0

# Names that are told, the dearest; the others are told as one.
SHOWN_MAX = 100

# Locks: none; here and below. One walk along the unique index, latest hour first, as
# far as the limit.
COSTS = """
WITH spent AS (
    SELECT nullif({name}, '') AS name, sum({jobs})::bigint AS jobs,
           sum(worker_seconds)::float8 AS seconds
      FROM (SELECT * FROM {table}
             WHERE hour >= date_trunc('hour', clock_timestamp())
                           - %(days)s * interval '1 d' {only}
             ORDER BY hour DESC LIMIT %(limit)s) looked_at
     WHERE %(queue)s::text IN ('', queue)
     GROUP BY 1),
ranked AS (
    SELECT *, row_number() OVER (ORDER BY name IS NULL, seconds DESC, name) AS rank
      FROM spent)
SELECT CASE WHEN rank <= %(shown)s THEN name END, sum(jobs)::bigint,
       sum(seconds)::float8
  FROM ranked GROUP BY 1, least(rank, %(shown)s + 1)
 ORDER BY least(rank, %(shown)s + 1)
"""
OF_TASKS = COSTS.format(
    name="task",
    jobs="succeeded + cancelled + expired + dead",
    table="pgqueue_task_hour",
    only="",
)
OF_LABELS = COSTS.format(
    name="label", jobs="jobs", table="pgqueue_label_hour", only="AND kind = %(by)s"
)


class Cost(NamedTuple):
    """
    What was spent on something.

    Attributes:
        name: Of the task, the tag or the lane; None: what no other line has.
        jobs: How many have ended.
        worker_seconds: How long threads were busy with them.
    """

    name: str | None
    jobs: int
    worker_seconds: float

    def price(self, of_an_hour: float | None) -> float | None:
        """Return what it cost, where an hour of a thread has a price."""
        if of_an_hour is None:
            return None
        return self.worker_seconds / HOUR_SECONDS * of_an_hour


def costs(
    cursor: Cursor, *, by: By, days: int, queue: str = "", limit: int = ROWS_MAX
) -> list[Cost]:
    """
    Return what was spent on each task, tag or lane, the dearest first.

    A job with several tags counts for each of them.

    Args:
        cursor: An open cursor.
        by: What is told apart.
        days: How far back.
        queue: Of this one alone; "": of all.
        limit: Rows that are read, the latest.
    """
    cursor.execute(
        OF_TASKS if by == "task" else OF_LABELS,
        {"by": by, "days": days, "queue": queue, "limit": limit, "shown": SHOWN_MAX},
    )
    return [Cost(*row) for row in cursor.fetchall()]
