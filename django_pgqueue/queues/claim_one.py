"""
Claim one: lease a job that is named, as a claim would.

For those who run jobs without a worker: the immediate mode and the testing kit. The
lease, the attempt, the fence and the crash of a lapsed lease are those of claim.py.
"""

from __future__ import annotations

from datetime import timedelta

from django_pgqueue.postgres.cursor import Cursor, record
from django_pgqueue.queues.claim import IS_CLOSED, LEASE_CANDIDATES, Claimed
from django_pgqueue.queues.held import WAITS

# Locks: a row lock on the job, until the statement's transaction ends. SKIP LOCKED: a
# worker that is claiming it at this moment has it. A paused queue gives nothing, as it
# gives nothing to a worker, and a pull queue neither; nor does a held task. Limits of
# queues are for workers: nothing waits for one here, and no place is taken.
CLAIM_ONE = f"""
WITH candidate AS MATERIALIZED (
    SELECT j.id, j.visible_at AS due_at,
           j.cancel_requested_at IS NOT NULL AS cancel_requested
      FROM pgqueue_job j
     WHERE j.id = %(id)s AND j.visible_at <= statement_timestamp()
       AND NOT EXISTS (SELECT 1 FROM pgqueue_queue q
                        WHERE q.name = j.queue AND {IS_CLOSED})
       AND NOT {WAITS}
       FOR UPDATE OF j SKIP LOCKED),
{LEASE_CANDIDATES}
"""


def claim_one(
    cursor: Cursor, job_id: int, *, worker: str, lease: timedelta
) -> Claimed | None:
    """
    Lease the job to *worker*, if it is due, and its queue and its task are not paused.

    Args:
        cursor: An open cursor, Django's or psycopg's. The caller commits.
        job_id: The job.
        worker: The name written to the row; at most 100 characters.
        lease: How long the job stays ours without a heartbeat.
    """
    return record(Claimed, cursor, CLAIM_ONE, id=job_id, worker=worker, lease=lease)
