"""
Pull ends: what has ended in pull queues, and how long that took, not yet in spans.

Whoever acks, gives back or rejects messages leaves a row, in the transaction that does
it (sql/pull_archive.sql, pull_bury.sql, nack.sql). So what is rolled back is not
counted, and what is committed is counted once, whatever client has done it. The leader
moves rows to the spans of tasks (worker/chores/counting.py), each to those of the time
at which it ended.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django_pgqueue.bounds import PULL_TASK
from django_pgqueue.postgres.cursor import Cursor, value
from django_pgqueue.queues.task_spans import (
    ADDED,
    BUCKETS,
    COLUMNS,
    COUNTS,
    HISTOGRAMS,
    STEPS,
    SUMMED,
    SUMS,
    Counted,
)

# Rows that are moved at once; each has up to 1,000 messages.
ROWS_MAX = 200

# Where one bucket ends and the next begins, in milliseconds: see task_spans.py.
EDGES = ",".join(str(2**place) for place in range(BUCKETS - 1))

# Locks: none. The table has a row for each queue, and no more.
HAS_PULL_QUEUES = "SELECT EXISTS (SELECT FROM pgqueue_queue WHERE kind = 'pull')"


def _counted(outcomes: str) -> str:
    return f"count(*) FILTER (WHERE outcome IN ({outcomes}))"


def _buckets(column: str) -> str:
    each = (f"count(*) FILTER (WHERE {column} = {n})" for n in range(BUCKETS))
    return f"ARRAY[{', '.join(each)}]"


# Locks: row locks on the moved rows, SKIP LOCKED: a second leader moves others; and on
# the rows of the spans, in the order of their key, as task_spans.ADD. All of it until
# the transaction of the caller ends.
# From where the last call has ended on: before it are those that were deleted, many of
# them while somebody's old snapshot keeps them. By place, which a scan of an index
# gives: ctid; nobody updates a row.
# A clock that was put back takes nothing from a sum.
MOVE = f"""
WITH gone AS (
    DELETE FROM pgqueue_pull_end WHERE ctid = ANY(ARRAY(
        SELECT e.ctid FROM pgqueue_pull_end e
         WHERE e.ended_at >= %(since)s::timestamptz
         ORDER BY e.ended_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
    RETURNING *),
ended AS (
    SELECT date_bin(interval '1 min', gone.ended_at, 'epoch'::timestamptz) AS minute,
           one.queue, gone.outcome, greatest(one.wait, 0) AS wait,
           greatest(one.run, 0) AS run,
           width_bucket(one.wait * 1e3, ARRAY[{EDGES}]::float8[]) AS wait_place,
           width_bucket(one.run * 1e3, ARRAY[{EDGES}]::float8[]) AS run_place
      FROM gone CROSS JOIN LATERAL
           unnest(gone.queues, gone.waits, gone.runs) AS one(queue, wait, run)
     WHERE one.queue IS NOT NULL),
counted AS MATERIALIZED (
    SELECT minute, queue, {_counted("'succeeded'")} AS succeeded,
           {_counted("'retried', 'dead'")} AS failed, {_counted("'dead'")} AS dead,
           {_counted("'cancelled'")} AS cancelled, {_counted("'expired'")} AS expired,
           coalesce(sum(wait), 0)::float8 AS wait_seconds,
           coalesce(sum(run), 0)::float8 AS run_seconds,
           {_buckets("wait_place")} AS waits, {_buckets("run_place")} AS runs
      FROM ended GROUP BY minute, queue),
added AS (
    INSERT INTO pgqueue_task_span AS s ({COLUMNS})
    SELECT span.seconds,
           date_bin(make_interval(secs => span.seconds), minute, 'epoch'::timestamptz)
               AS since,
           queue, '{PULL_TASK}', {SUMMED}
      FROM counted CROSS JOIN (VALUES {STEPS}) AS span(seconds)
     GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    {ADDED})
SELECT (SELECT count(*) FROM gone), (SELECT max(ended_at) FROM gone), queue, {SUMMED}
  FROM counted GROUP BY queue
"""


class Moved(NamedTuple):
    """What a call has moved: how many rows, up to which time, and what by queue."""

    rows: int
    last: datetime | None
    by_queue: dict[str, Counted]


def has_pull_queues(cursor: Cursor) -> bool:
    """Whether there is a queue whose ends this counts."""
    return bool(value(cursor, HAS_PULL_QUEUES))


def move(cursor: Cursor, *, since: datetime | None) -> Moved:
    """
    Move up to ROWS_MAX rows to the spans of tasks; the caller commits.

    Args:
        cursor: In a transaction with limit(…, plans=Plans.IN_ORDER).
        since: Of what has ended from then on; None: of all.
    """
    cursor.execute(MOVE, {"since": since or "-infinity", "limit": ROWS_MAX})
    rows = cursor.fetchall()
    if not rows:
        return Moved(0, since, {})
    names = (*COUNTS, *SUMS, *HISTOGRAMS)
    by_queue = {
        queue: Counted(**dict(zip(names, values, strict=True)))
        for _, _, queue, *values in rows
    }
    return Moved(rows[0][0], rows[0][1], by_queue)
