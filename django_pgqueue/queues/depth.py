"""
Depth: how many jobs a queue holds, for queues that may hold so many and no more.

The leader counts about once a second and writes it down, so that those who enqueue
read one row and count nothing. A count goes along an index, to one more than the limit
and no further.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from django_pgqueue.postgres.cursor import Cursor

# A count that is older says nothing: no worker leads, or its leader is busy.
FRESH_SECONDS = 10.0

# Counts take this share of the time of who counts, at most; and are so far apart.
COUNT_SHARE = 0.1
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 1.0, 8.0

# What a count may take. It passes over dead rows, and of those there is no limit.
COUNT_SECONDS_MAX = 2

# Locks: none. Every job that is not settled has an entry in the index
# pgqueue_job_claim, whose order it is. Who runs it has limit(…, plans=Plans.IN_ORDER):
# without statistics, or for a queue that is most of the table, PostgreSQL would read
# the table, or sort it.
COUNT = """
SELECT asked.name, held.jobs
  FROM unnest(%(queues)s::text[], %(rows)s::integer[]) AS asked(name, rows)
 CROSS JOIN LATERAL (
       SELECT count(*)::integer AS jobs FROM (
              SELECT 1 FROM pgqueue_job j WHERE j.queue = asked.name
               ORDER BY j.queue, j.priority DESC, j.visible_at
               LIMIT asked.rows) counted) held
"""

# Locks: a row lock on each queue's row. One that an operator has locked is left out,
# for its transaction may be open for long. As of the moment of the snapshot: what came
# during the count is not in it.
NOTE = f"""
WITH counted AS MATERIALIZED ({COUNT}),
free AS MATERIALIZED (
    SELECT q.name FROM pgqueue_queue q WHERE q.name = ANY(%(queues)s::text[])
       FOR NO KEY UPDATE SKIP LOCKED)
UPDATE pgqueue_queue q SET depth = counted.jobs, depth_at = statement_timestamp()
  FROM counted JOIN free USING (name)
 WHERE q.name = counted.name
"""

# Locks: none.
READ = """
SELECT q.name, q.depth, extract(epoch FROM clock_timestamp() - q.depth_at)::float8
  FROM pgqueue_queue q
 WHERE q.name = ANY(%(queues)s::text[]) AND q.depth_at IS NOT NULL
"""


class Noted(NamedTuple):
    """What the leader has counted."""

    jobs: int
    age_seconds: float


def read(cursor: Cursor, queues: Sequence[str]) -> dict[str, Noted]:
    """Return what was counted of these queues, where that still says anything."""
    cursor.execute(READ, {"queues": list(queues)})
    return {
        name: Noted(jobs, max(age, 0.0))
        for name, jobs, age in cursor.fetchall()
        if abs(age) <= FRESH_SECONDS
    }


def count(cursor: Cursor, limits: Mapping[str, int]) -> dict[str, int]:
    """
    Count the jobs of queues, each to one more than its limit.

    Args:
        cursor: In a transaction with limit(…, plans=Plans.IN_ORDER).
        limits: How many jobs each queue may hold.
    """
    cursor.execute(COUNT, _params(limits))
    return dict(cursor.fetchall())


def note(cursor: Cursor, limits: Mapping[str, int]) -> None:
    """Count as count(), and write it into the rows of queues that have one."""
    cursor.execute(NOTE, _params(limits))


def latest(cursor: Cursor, limits: Mapping[str, int]) -> dict[str, int]:
    """Return how many jobs queues hold: as was counted last, or counted now."""
    if not limits:
        return {}
    noted = read(cursor, [*limits])
    stale = {name: most for name, most in limits.items() if name not in noted}
    counted = count(cursor, stale) if stale else {}
    return counted | {name: min(noted[name].jobs, limits[name] + 1) for name in noted}


def pause_after(seconds: float) -> float:
    """Return the pause after a count that has taken *seconds*."""
    return min(max(seconds / COUNT_SHARE, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX)


def _params(limits: Mapping[str, int]) -> dict[str, list[str] | list[int]]:
    return {"queues": [*limits], "rows": [most + 1 for most in limits.values()]}
