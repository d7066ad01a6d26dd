"""
Gather: take the calls of a key together that wait for each other (`accumulate`).

Each call is a job of its own. It waits for its *window*: until `within` has passed
since it was stored, or until there are `size` of its queue, task and key. Whatever
makes a worker take one of them, a due one or the last of `size`, makes it *gather*
others: one run of the task gets them all.

No call waits for another caller's transaction: nothing is locked, and a row that is
not committed is neither counted nor gathered.
"""

from __future__ import annotations

from datetime import timedelta
from operator import attrgetter

from django_pgqueue.bounds import ACCUMULATE_SIZE_MAX
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.claim import IS_PAUSED, LEASE_CANDIDATES, Claimed
from django_pgqueue.queues.held import IS_HELD

# Calls of a key that nobody has taken: those that are due, and those that wait for
# their window and for nothing else. One of a process that died runs by itself, and
# who gathers nothing is not gathered. A paused queue gives nothing, nor does a held
# task: a run that began before the pause takes no more. They are of one run, which has
# a place already, where their queue has a limit.
# Rows are compared, from one place of the index on (accumulate_key, task, queue,
# visible_at) to another: no other index has this order. With an equation for each
# column the planner may take any that begins with one of them, and statistics from
# before the first calls make it walk over a whole queue.
# Locks: as CLAIM in claim.py: row locks, for the statement, and never a wait.
GATHER = f"""
WITH candidate AS MATERIALIZED (
    SELECT j.id, j.visible_at AS due_at,
           j.cancel_requested_at IS NOT NULL AS cancel_requested
      FROM pgqueue_job j
     WHERE j.accumulate_key IS NOT NULL AND j.leased_by IS NULL
       AND (j.accumulate_key, j.task, j.queue) >= (%(key)s::text, %(task)s, %(queue)s)
       AND (j.accumulate_key, j.task, j.queue, j.visible_at)
           <= (%(key)s::text, %(task)s, %(queue)s,
               statement_timestamp() + %(within)s::interval)
       AND (j.visible_at <= statement_timestamp()
            OR (j.deliveries = 0 AND j.run_after IS NULL))
       AND NOT j.runs_alone
       AND NOT EXISTS (SELECT 1 FROM pgqueue_queue q
                        WHERE q.name = %(queue)s AND {IS_PAUSED})
       AND NOT EXISTS (SELECT 1 FROM pgqueue_lane l
                        WHERE l.name = %(task)s AND {IS_HELD})
     ORDER BY j.accumulate_key, j.task, j.queue, j.visible_at LIMIT %(limit)s
       FOR UPDATE OF j SKIP LOCKED),
{LEASE_CANDIDATES}
"""

BY_ID = attrgetter("id")


def gather(
    cursor: Cursor,
    job: Claimed,
    *,
    within: timedelta,
    worker: str,
    limit: int,
    lease: timedelta,
) -> list[Claimed]:
    """
    Lease up to *limit* more calls of the key of *job* to *worker*; never waits.

    Args:
        cursor: An open cursor, Django's or psycopg's. The caller commits.
        job: A call that *worker* has leased.
        within: Those whose window ends no later than this from now.
        worker: The name written to the rows; at most 100 characters.
        limit: Jobs, up to ACCUMULATE_SIZE_MAX.
        lease: How long they stay ours without a heartbeat.

    Returns:
        Them by their ids; empty, too, for a job that runs alone or has no key.

    Raises:
        ValueError: *limit* is out of range.
    """
    if not 0 <= limit <= ACCUMULATE_SIZE_MAX:
        raise ValueError(f"limit must be from 0 to {ACCUMULATE_SIZE_MAX}, not {limit}")
    if job.accumulate_key is None or job.runs_alone or not limit:
        return []
    cursor.execute(
        GATHER,
        {
            "key": job.accumulate_key,
            "task": job.task,
            "queue": job.queue,
            "within": within,
            "worker": worker,
            "limit": limit,
            "lease": lease,
        },
    )
    return sorted(map(Claimed._make, cursor.fetchall()), key=BY_ID)
