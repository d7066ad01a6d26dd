"""
Queue limits: how many jobs of a queue are claimed at a time, and in a time, by all.

A claim from such a queue is a transaction of several statements, and of one claimer at
a time. It takes the queue's lock; it counts, in a statement of its own, for a statement
sees what was committed when it began; it claims as many as there is room for; and it
writes down what it has claimed. So nothing is claimed to be handed back.

For the jobs at a time there are *permits*: which job was claimed, with which delivery.
A permit says which rows to look at, and no more. A place is taken while the row says
that this delivery has the lease, so none is lost with a process, and none comes free
before the row goes. A lease that has lapsed keeps its place, since its worker may come
back and renew it: the next claim takes these jobs over first, each into its own place.

For the jobs in a time there is the bucket of lanes (sql/promote.sql): full_at is when
burst jobs could be claimed at once, and each moves it by one spacing, from the moment
of the claim on. So in any time from a to b, by leased_at, there are at most
burst + (b - a) / spacing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from django_pgqueue.bounds import (
    LANE_BURST_MAX,
    LANE_CAPACITY_MAX,
    LANE_SPACING_MAX,
    LANE_SPACING_MIN,
)
from django_pgqueue.postgres.cursor import Cursor, has_row, one_row
from django_pgqueue.postgres.keys import QUEUE_LIMITS
from django_pgqueue.queues.claim import (
    CLAIM_LIMIT_MAX,
    IS_DUE,
    LEASE_CANDIDATES,
    Claimed,
    park_lapsed,
    remember_queues,
)

# A process that is frozen in the midst of a claim is cut off after so long: until then
# nobody claims from that queue.
HOLD_SECONDS_MAX = 5

# Locks: the queue's advisory lock, until the transaction ends, if nobody has it: so a
# claim waits for no other one. A statement of its own: what follows it sees what was
# committed by whoever had the lock before.
HOLD = f"""
SELECT pg_try_advisory_xact_lock({QUEUE_LIMITS}, hashed.key),
       current_setting('transaction_isolation'),
       set_config('idle_in_transaction_session_timeout', '{HOLD_SECONDS_MAX}s', true)
  FROM (SELECT mod(hashtextextended(%(queue)s, 'pgqueue_job'::regclass::oid::bigint),
                   2147483647)::integer AS key) hashed
"""

# What an operator has said holds, else what the worker's settings say. Permits whose
# jobs are gone, or have another delivery, are deleted. A sub-select for each permit:
# of a join, a session that plans without nested loops would read all jobs. queue || '':
# else each of them may walk over the queue's backlog, 1.2 ms for 6,000 jobs.
# full_at that is further ahead than an empty bucket's is set back to that: a clock that
# was put back, or a rate that was raised, would hold the queue up.
# Locks: row locks on the permits that go; with a rate, on the queue's row. SKIP LOCKED:
# a permit of a job that went to another queue is that one's by now, and where an
# operator has the row, nothing is claimed until he is done.
ROOM = f"""
WITH permit AS MATERIALIZED (
    SELECT p.job_id,
           (SELECT j.visible_at <= statement_timestamp() FROM pgqueue_job j
             WHERE j.id = p.job_id AND j.deliveries = p.delivery
               AND j.queue || '' = p.queue AND j.leased_by IS NOT NULL) AS has_lapsed
      FROM pgqueue_permit p WHERE p.queue = %(queue)s),
gone AS (
    DELETE FROM pgqueue_permit WHERE job_id = ANY(ARRAY(
        SELECT p.job_id FROM pgqueue_permit p
         WHERE p.queue = %(queue)s AND p.job_id = ANY(ARRAY(
               SELECT job_id FROM permit WHERE has_lapsed IS NULL))
           FOR UPDATE SKIP LOCKED))),
said AS MATERIALIZED (
    SELECT least(greatest(coalesce(q.concurrency, %(concurrency)s::integer), 1),
                 {LANE_CAPACITY_MAX}) AS concurrency,
           coalesce(q.concurrency, %(concurrency)s::integer) IS NULL AS is_any,
           least(greatest(coalesce(q.rate_spacing, %(spacing)s::float8),
                          {LANE_SPACING_MIN:f}), {LANE_SPACING_MAX}) AS spacing,
           coalesce(q.rate_spacing, %(spacing)s::float8) IS NOT NULL AS has_rate,
           least(greatest(CASE WHEN q.rate_spacing IS NULL THEN %(burst)s::integer
                               ELSE q.rate_burst END, 1), {LANE_BURST_MAX}) AS burst
      FROM pgqueue_queue q WHERE q.name = %(queue)s),
bucket AS MATERIALIZED (
    SELECT q.full_at FROM pgqueue_queue q
     WHERE q.name = %(queue)s AND (SELECT has_rate FROM said)
       FOR NO KEY UPDATE SKIP LOCKED),
set_back AS (
    UPDATE pgqueue_queue q SET full_at = said.empty_at
      FROM (SELECT statement_timestamp()
                   + make_interval(secs => burst * spacing) AS empty_at FROM said) said
     WHERE q.name = %(queue)s AND (SELECT full_at FROM bucket) > said.empty_at)
SELECT CASE WHEN NOT said.is_any THEN said.concurrency - held.jobs END,
       held.lapsed,
       CASE WHEN said.has_rate THEN said.spacing END, said.burst,
       CASE WHEN said.has_rate
            THEN greatest(floor(said.burst - ahead.seconds / said.spacing), 0)::integer
            END,
       CASE WHEN said.has_rate
            THEN ahead.seconds - (said.burst - 1) * said.spacing END,
       said.has_rate AND NOT EXISTS (SELECT FROM bucket)
  FROM said
 CROSS JOIN LATERAL (
       SELECT count(has_lapsed)::integer AS jobs,
              coalesce(array_agg(job_id) FILTER (WHERE has_lapsed), '{{}}') AS lapsed
         FROM permit) held
 CROSS JOIN LATERAL (
       SELECT least(greatest(extract(epoch FROM (SELECT full_at FROM bucket)
                                               - statement_timestamp())::float8, 0),
                    said.burst * said.spacing) AS seconds) ahead
"""

# Jobs that have a place and a lease that ran out: who takes one over needs no other
# place. queue || '': else the planner may walk over the backlog of the queue.
# Locks: as CLAIM in claim.py.
TAKE_OVER = f"""
WITH candidate AS MATERIALIZED (
    SELECT j.id, j.visible_at AS due_at,
           j.cancel_requested_at IS NOT NULL AS cancel_requested
      FROM pgqueue_job j
     WHERE j.id = ANY(%(ids)s::bigint[]) AND j.queue || '' = %(queue)s
       AND j.leased_by IS NOT NULL AND {IS_DUE}
       AND j.runs_alone = %(alone)s AND j.id <> ALL(%(barred)s::bigint[])
     ORDER BY j.visible_at LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED),
{LEASE_CANDIDATES}
"""

# Locks: row locks on the permits. One of an earlier delivery, or of another queue in
# which the job was, is this one's now.
PERMIT = """
INSERT INTO pgqueue_permit (job_id, queue, delivery)
SELECT id, %(queue)s, delivery
  FROM unnest(%(ids)s::bigint[], %(deliveries)s::integer[]) AS claimed(id, delivery)
 ORDER BY id
ON CONFLICT (job_id) DO UPDATE
   SET queue = EXCLUDED.queue, delivery = EXCLUDED.delivery
"""

# From the moment of the claim on, and not from that of the count: then claims keep to
# the rate as leased_at tells it. Locks: the queue's row, which ROOM has locked.
PAY = """
UPDATE pgqueue_queue
   SET full_at = least(greatest(full_at, %(at)s::timestamptz),
                       %(at)s::timestamptz
                           + make_interval(secs => %(spacing)s::float8 * %(burst)s))
                     + make_interval(secs => %(spacing)s::float8 * %(jobs)s)
 WHERE name = %(queue)s
RETURNING extract(epoch FROM full_at - statement_timestamp())::float8
              - (%(burst)s - 1) * %(spacing)s::float8
"""

# Locks: the row of the queue; so has the next one. A queue that no worker has met gets
# its row here.
SET_CONCURRENCY = """
INSERT INTO pgqueue_queue AS q (name, concurrency) VALUES (%(queue)s, %(concurrency)s)
ON CONFLICT (name) DO UPDATE SET concurrency = EXCLUDED.concurrency
 WHERE q.concurrency IS DISTINCT FROM EXCLUDED.concurrency
RETURNING q.name
"""

SET_RATE = """
INSERT INTO pgqueue_queue AS q (name, rate_spacing, rate_burst)
VALUES (%(queue)s, %(spacing)s, %(burst)s)
ON CONFLICT (name) DO UPDATE
   SET rate_spacing = EXCLUDED.rate_spacing, rate_burst = EXCLUDED.rate_burst
 WHERE (q.rate_spacing, q.rate_burst)
       IS DISTINCT FROM (EXCLUDED.rate_spacing, EXCLUDED.rate_burst)
RETURNING q.name
"""

# Claims up to a limit, as the functions of claim.py and suspects.py do.
Claim = Callable[..., list[Claimed]]


class LimitedClaim(NamedTuple):
    """
    What came of a claim from a queue with a limit.

    Attributes:
        jobs: Those that are leased now.
        is_busy: Somebody else was claiming from it: nobody was asked.
        is_short: It had less room than was asked for, and all of that was taken; so
            there may be more jobs.
        is_full: It has as many jobs at a time as it may.
        next_seconds: How long until its rate lets the next one go; zero: none does.
    """

    jobs: list[Claimed]
    is_busy: bool = False
    is_short: bool = False
    is_full: bool = False
    next_seconds: float = 0.0


class _Room(NamedTuple):
    places: int | None  # None: any number. Below zero where it was more before.
    lapsed: list[int]  # Jobs that have a place and no valid lease.
    spacing: float | None
    burst: int
    tokens: int | None
    next_seconds: float | None
    is_held: bool  # An operator has the row.


def claim_limited(
    cursor: Cursor,
    claim: Claim,
    *,
    queue: str,
    concurrency: int | None,
    spacing: float | None,
    burst: int,
    worker: str,
    limit: int,
    lease: timedelta,
    barred: Sequence[int] = (),
    alone: bool = False,
    held: Sequence[str] = (),
) -> LimitedClaim:
    """
    Lease up to *limit* jobs by *claim*, as far as the limits of *queue* have room.

    Waits for no other claim. What an operator has said of the queue holds in place of
    *concurrency*, and of *spacing* with *burst*.

    Args:
        cursor: In a READ COMMITTED transaction of its own, which the caller ends at
            once: until then nobody else claims from the queue.
        claim: claim(), claim_from_floors() or claim_suspects() for this queue alone,
            without those that are *barred*.
        queue: Its name.
        concurrency: Jobs at a time, on all workers together; None: any number.
        spacing: Seconds from one job to the next; None: as they come.
        burst: How many may be ahead of that.
        worker: The name written to the rows; at most 100 characters.
        limit: Jobs, 1 to CLAIM_LIMIT_MAX.
        lease: How long the jobs stay ours without a heartbeat.
        barred: Ids of jobs to leave alone: they still run where they would go.
        held: Tasks whose jobs are left alone, as in claim().
        alone: Whether *claim* is for jobs that run alone.

    Raises:
        ValueError: *limit* is out of range; or the transaction is of another level: it
            would count what it saw before it got the lock.
    """
    if not 1 <= limit <= CLAIM_LIMIT_MAX:
        raise ValueError(f"limit must be from 1 to {CLAIM_LIMIT_MAX}, not {limit}")
    if not _hold(cursor, queue):
        return LimitedClaim([], is_busy=True)
    said = {"concurrency": concurrency, "spacing": spacing, "burst": burst}
    room = _room(cursor, queue, said)
    if room.is_held:
        return LimitedClaim([], is_busy=True)
    most = limit if room.tokens is None else min(limit, room.tokens)
    terms = {"worker": worker, "lease": lease}
    jobs: list[Claimed] = []
    places = room.places
    if room.lapsed and places is not None:
        # Who takes these over would run a job of a held task; and there they would keep
        # their places for as long as it is held.
        places += park_lapsed(cursor, room.lapsed, barred)
    if room.lapsed and most:
        taking = {"queue": queue, "ids": room.lapsed, "limit": most, **terms}
        jobs = _take_over(cursor, alone=alone, barred=list(barred), **taking)
    fresh = most - len(jobs)
    if places is not None:
        fresh = min(fresh, max(places, 0))
    beside = {"held": held} if held else {}
    got = claim(cursor, limit=fresh, **terms, **beside) if fresh else []
    jobs += got
    next_seconds = room.next_seconds or 0.0
    if jobs and places is not None:
        _permit(cursor, queue, jobs)
    if jobs and room.spacing is not None:
        next_seconds = _pay(cursor, queue, room.spacing, room.burst, jobs)
    return LimitedClaim(
        jobs,
        is_short=len(jobs) < limit and len(got) == fresh,
        is_full=places is not None and len(got) >= places,
        next_seconds=max(next_seconds, 0.0),
    )


def set_concurrency(cursor: Cursor, queue: str, concurrency: int | None) -> bool:
    """
    Let so many jobs of *queue* be claimed at a time, whatever the settings say.

    Args:
        cursor: An open cursor; the caller commits, and wakes the queue after that.
        queue: Its name; it need not have any job.
        concurrency: From 1 to LANE_CAPACITY_MAX; None: what the settings say.

    Returns:
        False: so it was before.
    """
    return has_row(cursor, SET_CONCURRENCY, queue=queue, concurrency=concurrency)


def set_rate(
    cursor: Cursor, queue: str, spacing: float | None, burst: int | None
) -> bool:
    """
    Let jobs of *queue* be claimed so far apart, whatever the settings say.

    Args:
        cursor: An open cursor; the caller commits, and wakes the queue after that.
        queue: Its name; it need not have any job.
        spacing: Seconds, as a rate has them; None: what the settings say.
        burst: How many may be ahead of that, from 1 to LANE_BURST_MAX; None with a
            *spacing* of None.

    Returns:
        False: so it was before.
    """
    return has_row(cursor, SET_RATE, queue=queue, spacing=spacing, burst=burst)


def _hold(cursor: Cursor, queue: str) -> bool:
    """Take the lock of the queue; False: somebody else has it."""
    cursor.execute(HOLD, {"queue": queue})
    is_ours, isolation, _ = one_row(cursor)
    if isolation != "read committed":
        raise ValueError(
            f"claim_limited() needs READ COMMITTED, and this transaction is "
            f"{isolation}: it would count what it saw before it got the queue's lock."
        )
    return bool(is_ours)


def _room(cursor: Cursor, queue: str, said: Mapping[str, Any]) -> _Room:
    """Count what is taken; give back the places of jobs that are gone."""
    for _ in range(2):
        cursor.execute(ROOM, {"queue": queue, **said})
        row = cursor.fetchone()
        if row is not None:
            return _Room(*row)
        remember_queues(cursor, [queue])
    raise AssertionError(f"the row of queue {queue!r} goes whenever it is made")


def _take_over(cursor: Cursor, **taking: Any) -> list[Claimed]:
    cursor.execute(TAKE_OVER, taking)
    return list(map(Claimed._make, cursor.fetchall()))


def _permit(cursor: Cursor, queue: str, jobs: Sequence[Claimed]) -> None:
    """Note which jobs have a place."""
    cursor.execute(
        PERMIT,
        {
            "queue": queue,
            "ids": [job.id for job in jobs],
            "deliveries": [job.delivery for job in jobs],
        },
    )


def _pay(
    cursor: Cursor, queue: str, spacing: float, burst: int, jobs: Sequence[Claimed]
) -> float:
    """Take what was claimed from the bucket; return when the next one may go."""
    cursor.execute(
        PAY,
        {
            "queue": queue,
            "spacing": spacing,
            "burst": burst,
            "jobs": len(jobs),
            "at": max(job.claimed_at for job in jobs),
        },
    )
    (seconds,) = one_row(cursor)
    return float(seconds)
