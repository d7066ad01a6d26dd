"""
Lease: keep it, hand it back, or take it from a process that is known to be dead.

A lease is (id, delivery, leased_by). Whatever changes a leased row presents all three
and touches nothing when one differs: somebody else owns the job then.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django_pgqueue.postgres.cursor import Cursor, has_row, record
from django_pgqueue.queues.bands import ALL_BANDS
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.errors import ROOM_FOR_ONE
from django_pgqueue.queues.lanes import PACED
from django_pgqueue.queues.unique import IS_KEYLESS, retake

# Locks: row locks on the leased rows, for the statement. SKIP LOCKED: a plain UPDATE
# deadlocks with settles that lock the same rows in another order, and hangs behind an
# ack inside a task's own transaction. A row that is skipped is locked or lost: the
# caller asks again before the lease ends.
# greatest: a task may have extended its lease beyond ours.
RENEW = """
WITH held AS MATERIALIZED (
    SELECT j.id FROM pgqueue_job j
      JOIN unnest(%(ids)s::bigint[], %(deliveries)s::int[]) AS mine(id, delivery)
        ON j.id = mine.id AND j.deliveries = mine.delivery
     WHERE j.id = ANY(%(ids)s::bigint[]) AND j.leased_by = %(worker)s
       FOR UPDATE OF j SKIP LOCKED)
UPDATE pgqueue_job AS j
   SET visible_at = greatest(j.visible_at,
                             statement_timestamp() + %(lease)s::interval)
 WHERE j.id = ANY(ARRAY(SELECT id FROM held))
RETURNING j.id
"""

# Locks: none, so it tells a row that somebody has locked from one that is lost.
HELD = """
SELECT j.id FROM pgqueue_job j
  JOIN unnest(%(ids)s::bigint[], %(deliveries)s::int[]) AS mine(id, delivery)
    ON j.id = mine.id AND j.deliveries = mine.delivery
 WHERE j.id = ANY(%(ids)s::bigint[]) AND j.leased_by = %(worker)s
"""

# Locks: a row lock on the job, for the statement. It waits for whoever has the row,
# since the task that asks must be told whether the job is still its own; it holds no
# other row meanwhile.
EXTEND = """
UPDATE pgqueue_job
   SET visible_at = greatest(visible_at, statement_timestamp() + %(lease)s::interval)
 WHERE id = %(id)s AND deliveries = %(delivery)s AND leased_by = %(worker)s
RETURNING extract(epoch FROM visible_at - statement_timestamp())::float8
"""

# Locks: none. A job as its claim returned it, for whoever ends it in place of a process
# that could not.
LEASED = """
SELECT j.id, j.deliveries, j.task, j.args::text, j.kwargs::text, j.headers::text,
       j.queue, j.priority, j.attempt, j.max_attempts, j.crashes, j.runs_alone,
       j.errors->-1->>'kind', j.enqueued_at, j.accumulate_key, j.lane, j.lane_policy,
       j.lane_spacing IS NOT NULL, j.expires_at <= statement_timestamp(), j.leased_at,
       coalesce(j.run_after, j.enqueued_at), j.cancel_requested_at IS NOT NULL
  FROM pgqueue_job j
 WHERE j.id = %(id)s AND j.deliveries = %(delivery)s AND j.leased_by = %(worker)s
"""

# Locks: as EXTEND. No index covers progress, so the update is HOT where its page has
# room.
PROGRESS = """
UPDATE pgqueue_job SET progress = %(progress)s::jsonb
 WHERE id = %(id)s AND deliveries = %(delivery)s AND leased_by = %(worker)s
RETURNING id
"""

# Locks: none. One index probe per lease.
CANCEL_REQUESTS = """
SELECT j.id FROM pgqueue_job j
  JOIN unnest(%(ids)s::bigint[], %(deliveries)s::int[]) AS mine(id, delivery)
    ON j.id = mine.id AND j.deliveries = mine.delivery
 WHERE j.id = ANY(%(ids)s::bigint[]) AND j.leased_by = %(worker)s
   AND j.cancel_requested_at IS NOT NULL
"""

# Where a job stood before its claim; not older than now, as any due row.
AS_BEFORE = "least(coalesce(j.run_after, j.enqueued_at), statement_timestamp())"


def put_back(due: str) -> str:
    """Return the SQL that makes job j nobody's, and due; of a rate, at its turn."""
    return f"""visible_at = CASE WHEN NOT {PACED} THEN {due} END,
       lane_due_at = CASE WHEN {PACED} THEN statement_timestamp() END,
       leased_by = NULL, leased_at = NULL"""


# Locks: row locks on the rows handed back, for the statement. Handed back as if never
# claimed: the attempt is given back and the job keeps its place in its band.
# deliveries stays: it is a fencing token. But what was never started is no delivery of
# which a job has had enough: from the tenth on each is noted, as those before a redrive
# are, so that DELIVERIES_MAX does not count it. (A busy queue hands the same jobs back
# and claims them again many times before their turn.)
RELEASE = f"""
UPDATE pgqueue_job AS j
   SET {put_back("least(mine.due_at, statement_timestamp())")},
       attempt = greatest(j.attempt - 1, 0),
       headers = CASE WHEN j.deliveries < 10 THEN j.headers
           ELSE j.headers || jsonb_build_object('pgqueue.deliveries_before',
               CASE WHEN jsonb_typeof(j.headers->'pgqueue.deliveries_before') = 'number'
                    THEN least((j.headers->>'pgqueue.deliveries_before')::numeric,
                               j.deliveries - 1)
                    ELSE 0 END + 1) END
  FROM unnest(%(ids)s::bigint[], %(deliveries)s::int[], %(due)s::timestamptz[])
       AS mine(id, delivery, due_at)
 WHERE j.id = ANY(%(ids)s::bigint[])
   AND j.id = mine.id AND j.deliveries = mine.delivery AND j.leased_by = %(worker)s
RETURNING j.id, j.queue, {IS_KEYLESS}
"""

# Locks: row locks on what the dead process held, for the statement. SKIP LOCKED: the
# supervisor must not hang behind a stranger's transaction, or behind a statement of
# the dead client; what is skipped is named in the answer. Its leases end at
# most one lease from now, and a lease end is what visible_at holds, so the claim index
# finds them: one range per band, however long the backlog. Those that it was running
# crashed: the attempt is given back, crashes counted, and the job runs alone from now
# on. The others were only claimed and go back as if never claimed.
# So do the calls that a running job had gathered: whoever is of its queue, task and key
# was in that run, or is one of the few that waited here for the next.
# A running task may have extended its lease beyond that range: those are looked up by
# their ids.
# A process that lives takes back what it was leased by a claim without an answer. It
# keeps what it knows of.
# Not older than now: a lapsed lease is claimed as any due row is.
# OFFSET 0 keeps the planner from flattening the range per band into one scan of the
# table, as PostgreSQL 15 did.
RESCUE = f"""
WITH RECURSIVE {ALL_BANDS},
runs AS MATERIALIZED (
    SELECT j.queue, j.task, j.accumulate_key
      FROM unnest(%(ids)s::bigint[], %(deliveries)s::int[]) AS running(id, delivery)
      JOIN pgqueue_job j ON j.id = running.id AND j.deliveries = running.delivery
     WHERE j.id = ANY(%(ids)s::bigint[]) AND j.accumulate_key IS NOT NULL),
held AS MATERIALIZED (
    SELECT held.id, held.queue, held.deliveries,
           EXISTS (SELECT 1 FROM unnest(%(ids)s::bigint[], %(deliveries)s::int[])
                                 AS running(id, delivery)
                    WHERE running.id = held.id
                      AND running.delivery = held.deliveries)
           OR (held.accumulate_key IS NOT NULL
               AND EXISTS (SELECT 1 FROM runs
                            WHERE runs.accumulate_key = held.accumulate_key
                              AND runs.task = held.task
                              AND runs.queue = held.queue)) AS crashed
      FROM band
     CROSS JOIN LATERAL (
           SELECT j.id, j.queue, j.deliveries, j.task, j.accumulate_key
             FROM pgqueue_job j
            WHERE j.queue = band.queue AND j.priority = band.priority
              AND j.visible_at > statement_timestamp()
              AND j.visible_at <= statement_timestamp() + %(lease)s::interval
              AND j.leased_by = %(worker)s
              AND NOT EXISTS (SELECT 1 FROM unnest(%(kept_ids)s::bigint[],
                                                   %(kept_deliveries)s::int[])
                                            AS kept(id, delivery)
                               WHERE kept.id = j.id
                                 AND kept.delivery = j.deliveries)
            ORDER BY j.visible_at OFFSET 0) held
    UNION ALL
    SELECT j.id, j.queue, j.deliveries, true
      FROM unnest(%(ids)s::bigint[], %(deliveries)s::int[]) AS running(id, delivery)
      JOIN pgqueue_job j ON j.id = running.id AND j.deliveries = running.delivery
     WHERE j.id = ANY(%(ids)s::bigint[]) AND j.leased_by = %(worker)s
       AND j.visible_at > statement_timestamp() + %(lease)s::interval),
free AS MATERIALIZED (
    SELECT j.id FROM pgqueue_job j
     WHERE j.id = ANY(ARRAY(SELECT id FROM held)) FOR UPDATE SKIP LOCKED),
taken AS (
UPDATE pgqueue_job AS j
   SET {put_back(AS_BEFORE)},
       attempt = greatest(j.attempt - 1, 0),
       crashes = CASE WHEN crashed AND NOT (j.runs_alone AND %(beside)s::int > 0)
                      THEN least(j.crashes, 32766) + 1 ELSE j.crashes END,
       runs_alone = j.runs_alone OR crashed,
       errors = CASE WHEN crashed
                     THEN {ROOM_FOR_ONE} || jsonb_build_object(
                         'kind', 'worker_lost', 'worker', %(worker)s::text,
                         'beside', %(beside)s::int,
                         'attempt', j.attempt, 'delivery', j.deliveries,
                         'at', statement_timestamp(), 'message', %(message)s::text)
                     ELSE j.errors END
  FROM held
 WHERE j.id = ANY(ARRAY(SELECT id FROM free)) AND j.id = held.id
   AND j.deliveries = held.deliveries AND j.leased_by = %(worker)s
RETURNING j.id, {IS_KEYLESS} AS is_keyless)
SELECT held.id, held.queue, held.crashed, taken.id IS NULL,
       coalesce(taken.is_keyless, false)
  FROM held LEFT JOIN taken ON taken.id = held.id
"""


class Rescued(NamedTuple):
    """A job that was taken back from a dead process."""

    id: int
    queue: str
    crashed: bool  # It was running, rather than only claimed.
    is_locked: bool = False  # Not taken back: somebody holds its row. Ask again.
    is_keyless: bool = False  # It had to ask for its dedup key again.


def renew(
    cursor: Cursor,
    *,
    worker: str,
    leases: Sequence[tuple[int, int]],
    lease: timedelta,
) -> set[int]:
    """
    Renew the *leases*, (id, delivery) each, and return the ids that were renewed.

    An id that is missing from the answer is locked by somebody, or lost.
    """
    cursor.execute(
        RENEW,
        {
            "ids": [job_id for job_id, _ in leases],
            "deliveries": [delivery for _, delivery in leases],
            "worker": worker,
            "lease": lease,
        },
    )
    return {job_id for (job_id,) in cursor.fetchall()}


def still_held(
    cursor: Cursor, *, worker: str, leases: Sequence[tuple[int, int]]
) -> set[int]:
    """Return the ids of those *leases*, (id, delivery) each, that nobody has taken."""
    cursor.execute(
        HELD,
        {
            "ids": [job_id for job_id, _ in leases],
            "deliveries": [delivery for _, delivery in leases],
            "worker": worker,
        },
    )
    return {job_id for (job_id,) in cursor.fetchall()}


def find_leased(
    cursor: Cursor, *, worker: str, job_id: int, delivery: int
) -> Claimed | None:
    """Return a job that is leased to *worker*; None: it is not any more."""
    leased = {"worker": worker, "id": job_id, "delivery": delivery}
    return record(Claimed, cursor, LEASED, **leased)


def extend(
    cursor: Cursor, *, worker: str, job_id: int, delivery: int, lease: timedelta
) -> float | None:
    """
    Let one lease end no sooner than *lease* from now; never makes it end sooner.

    Returns:
        The seconds that the lease has left, by the database's clock; None: the job is
        somebody else's, or gone.
    """
    leased = {"id": job_id, "delivery": delivery, "worker": worker}
    return record(float, cursor, EXTEND, **leased, lease=lease)


def report_progress(
    cursor: Cursor, *, worker: str, job_id: int, delivery: int, progress: str
) -> bool:
    """
    Store what a running task says about its progress; False: the lease is lost.

    Args:
        cursor: An open cursor; the caller commits.
        worker: Whose lease it is.
        job_id: Of the job.
        delivery: The fencing token.
        progress: JSON text.
    """
    params = {
        "id": job_id,
        "delivery": delivery,
        "worker": worker,
        "progress": progress,
    }
    return has_row(cursor, PROGRESS, **params)


def cancel_requests(
    cursor: Cursor, *, worker: str, leases: Sequence[tuple[int, int]]
) -> set[int]:
    """Return the ids of those *leases*, (id, delivery) each, that are to stop."""
    cursor.execute(
        CANCEL_REQUESTS,
        {
            "ids": [job_id for job_id, _ in leases],
            "deliveries": [delivery for _, delivery in leases],
            "worker": worker,
        },
    )
    return {job_id for (job_id,) in cursor.fetchall()}


def release(
    cursor: Cursor, *, worker: str, leases: Sequence[tuple[int, int, datetime]]
) -> list[tuple[int, str]]:
    """
    Hand back jobs that were claimed and never started, as if never claimed.

    Args:
        cursor: An open cursor; the caller commits.
        worker: Whose leases they are.
        leases: (id, delivery, due_at) of each, as the claim returned them.

    Returns:
        (id, queue) of each that was still ours.
    """
    cursor.execute(
        RELEASE,
        {
            "ids": [job_id for job_id, _, _ in leases],
            "deliveries": [delivery for _, delivery, _ in leases],
            "due": [due_at for _, _, due_at in leases],
            "worker": worker,
        },
    )
    rows = cursor.fetchall()
    _retake(cursor, [job_id for job_id, _, is_keyless in rows if is_keyless])
    return [(job_id, queue) for job_id, queue, _ in rows]


def rescue(
    cursor: Cursor,
    *,
    worker: str,
    running: Sequence[tuple[int, int]],
    lease: timedelta,
    message: str,
    kept: Sequence[tuple[int, int]] = (),
) -> list[Rescued]:
    """
    Take back every lease of *worker*, whose process is known to be dead.

    Or, of a process that lives, every lease that it does not know of.

    Args:
        cursor: An open cursor; the caller commits.
        worker: The dead worker's name.
        running: (id, delivery) of the jobs that its threads were running.
        lease: The longest lease it can have taken.
        message: What happened, for the errors of the jobs that crashed.
        kept: (id, delivery) of the leases that stay.
    """
    cursor.execute(
        RESCUE,
        {
            "worker": worker,
            "ids": [job_id for job_id, _ in running],
            "deliveries": [delivery for _, delivery in running],
            "beside": max(len(running) - 1, 0),
            "lease": lease,
            "message": message,
            "kept_ids": [job_id for job_id, _ in kept],
            "kept_deliveries": [delivery for _, delivery in kept],
        },
    )
    rescued = [Rescued(*row) for row in cursor.fetchall()]
    _retake(cursor, [job.id for job in rescued if job.is_keyless])
    return rescued


def _retake(cursor: Cursor, ids: Sequence[int]) -> None:
    """Let jobs that have not really run take their dedup keys again, if they can."""
    if ids:
        retake(cursor, [(job_id, False) for job_id in ids])
