"""
Suspects: jobs whose process died under them. Each may be what kills it.

So none of them runs beside other work again. They run alone, one at a time, in a
process that does nothing else; a crash that met hundreds of them is narrowed down by
halves first, so that the innocent of them need not wait for one another.

What a crash met is written in the latest error of each job that it met: the name of
the process, and how many ran there besides. Those that share both are a *crowd*.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from django_pgqueue.postgres.cursor import Cursor, rows
from django_pgqueue.queues.claim import IS_PAUSED, LEASE_CANDIDATES, Claimed
from django_pgqueue.queues.held import WAITS

# A crowd that is larger is halved by each crash of its own; a smaller one is run one by
# one. Halves cost an innocent job that runs beside the guilty one a repeat each, and
# singles cost none.
CROWD_MAX = 50

# Of these many suspects the queues are told, the longest due first.
LOOK_ROWS_MAX = 10_000

# How many of a suspect's crowd may run at once; numbers that we did not write are one.
MOST_AT_ONCE = f"""
CASE WHEN j.errors->-1->>'kind' = 'worker_lost'
      AND jsonb_typeof(j.errors->-1->'beside') = 'number'
      AND (j.errors->-1->'beside')::numeric BETWEEN {CROWD_MAX} AND 100000
     THEN ((j.errors->-1->'beside')::numeric::int + 2) / 2 ELSE 1 END
"""

# Locks: none. The index pgqueue_job_alone holds nothing but suspects, so where there
# are none this reads a page. A paused queue gives nothing, as it gives to no claim; and
# those of a held task wait where they are, for they are few.
WAITING = f"""
SELECT suspect.queue, count(*),
       EXISTS (SELECT FROM pgqueue_queue q
                WHERE q.name = suspect.queue
                  AND num_nonnulls(q.concurrency, q.rate_spacing) > 0)
  FROM (SELECT j.queue FROM pgqueue_job j
         WHERE j.runs_alone AND j.visible_at <= statement_timestamp() AND NOT {WAITS}
         ORDER BY j.visible_at LIMIT %(limit)s) suspect
 WHERE NOT EXISTS (SELECT 1 FROM pgqueue_queue q
                    WHERE q.name = suspect.queue AND {IS_PAUSED})
 GROUP BY suspect.queue ORDER BY suspect.queue
"""

# Locks: row locks on what it takes, until the statement's transaction ends; SKIP
# LOCKED: several workers may look, each takes another suspect, or another half of a
# crowd. What is leased, and how a lapsed lease counts, is as in claim.py.
# The longest due goes first, and decides how many of its crowd go with it.
# queue || '': else the planner may walk over the backlog of these queues in the claim
# index, where pgqueue_job_alone holds suspects alone.
CLAIM_SUSPECTS = f"""
WITH first AS MATERIALIZED (
    SELECT j.id, j.visible_at AS due_at,
           j.cancel_requested_at IS NOT NULL AS cancel_requested,
           j.errors->-1->>'worker' AS crowd, {MOST_AT_ONCE} AS most
      FROM pgqueue_job j
     WHERE j.runs_alone AND j.visible_at <= statement_timestamp()
       AND j.queue || '' = ANY(%(queues)s::text[]) AND NOT {WAITS}
     ORDER BY j.visible_at LIMIT 1 FOR UPDATE SKIP LOCKED),
candidate AS MATERIALIZED (
    SELECT id, due_at, cancel_requested FROM first
    UNION ALL
    SELECT id, due_at, cancel_requested FROM (
           SELECT j.id, j.visible_at AS due_at,
                  j.cancel_requested_at IS NOT NULL AS cancel_requested
             FROM pgqueue_job j
            WHERE (SELECT most FROM first) > 1
              AND j.runs_alone AND j.visible_at <= statement_timestamp()
              AND j.queue || '' = ANY(%(queues)s::text[]) AND NOT {WAITS}
              AND j.errors->-1->>'worker' = (SELECT crowd FROM first)
              AND {MOST_AT_ONCE} = (SELECT most FROM first)
              AND j.id <> (SELECT id FROM first)
            ORDER BY j.visible_at
            LIMIT (SELECT least(most, %(limit)s) - 1 FROM first)
              FOR UPDATE SKIP LOCKED) beside),
{LEASE_CANDIDATES}
"""


class Waiting(NamedTuple):
    """The suspects of a queue that wait to run alone."""

    queue: str
    jobs: int
    is_limited: bool = False  # An operator says how many of it are claimed.


def waiting(cursor: Cursor, limit: int = LOOK_ROWS_MAX) -> list[Waiting]:
    """
    Return how many suspects are due, by queue; of queues that are not paused.

    Args:
        cursor: An open cursor.
        limit: How many are looked at, the longest due first.
    """
    return rows(Waiting, cursor, WAITING, limit=limit)


def claim_suspects(
    cursor: Cursor, *, queues: Sequence[str], worker: str, limit: int, lease: timedelta
) -> list[Claimed]:
    """
    Lease the suspects that may run together to *worker*; never waits.

    That is one, or, where a crash has met more than CROWD_MAX, half of those that it
    has met. Empty: none is due.

    Args:
        cursor: An open cursor, Django's or psycopg's. The caller commits.
        queues: Names of queues; the caller leaves out those that are paused.
        worker: The name written to the rows; at most 100 characters.
        limit: Jobs that can run at once, from 1.
        lease: How long the jobs stay ours without a heartbeat.
    """
    return rows(
        Claimed,
        cursor,
        CLAIM_SUSPECTS,
        queues=list(queues),
        worker=worker,
        limit=limit,
        lease=lease,
    )
