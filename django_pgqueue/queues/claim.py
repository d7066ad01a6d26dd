"""
Claim: lease due jobs to one worker, so that no other worker runs them.

The seventh hop of a job's life: worker/claim/claimer.py comes before it and
worker/run/executor.py after it. A claim is one statement in its own short transaction.
Work is never run inside it: an open transaction would hold back vacuum on every table
of the database for as long as the task takes.

A *band* is one priority of one queue: the rows that share the first two columns of the
index pgqueue_job_claim and stand there in the order of visible_at.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import NamedTuple

from django_pgqueue.bounds import LANE_CAPACITY_MAX, PULL_TASK
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.bands import BANDS_OF_QUEUES, BANDS_SEEN, LIVE_QUEUES
from django_pgqueue.queues.errors import ROOM_FOR_ONE
from django_pgqueue.queues.held import IS_FOR_IT, IS_HELD
from django_pgqueue.queues.held import WAITS as WAITS_FOR_ITS_TASK
from django_pgqueue.queues.lanes import PACED

CLAIM_LIMIT_MAX = 2_000  # Rows per statement.

PARK_LIMIT = 1_000  # Likewise, of what is parked.

# What a lease that has lapsed leaves in its row j: a crash.
CRASHES = """CASE WHEN j.leased_by IS NULL THEN j.crashes
                          ELSE least(j.crashes, 32766) + 1 END"""
RUNS_ALONE = "j.runs_alone OR (j.leased_by IS NOT NULL AND j.crashes > 0)"
ERRORS = f"""CASE WHEN j.leased_by IS NULL THEN j.errors
                         ELSE {ROOM_FOR_ONE} || jsonb_build_object(
                             'kind', 'lease_expired', 'worker', j.leased_by,
                             'attempt', j.attempt, 'delivery', j.deliveries,
                             'at', statement_timestamp(),
                             'message', 'The lease ran out: its worker was lost, '
                                        'paused or cut off.') END"""

# Locks: row locks (FOR UPDATE) on at most %(limit)s rows, until the statement's
# transaction ends; no table lock above ROW EXCLUSIVE. SKIP LOCKED: a row that another
# claim holds is passed over, not waited for, so claims never block one another.
# visible_at is schedule, back-off and lease end in one: a job whose worker died is
# due again by itself (leased_by is then still set), and a parked one (NULL) never is.
# Such a lapsed lease is a crash: it gives its attempt back and counts in crashes; from
# the second on the job runs alone, since it may be what takes its process down.
# Jobs that run alone are not for these claims but for that of suspects.py: walked over
# here, for as long as they wait. One that a claim finds out by its lapsed lease comes
# back with runs_alone, and is handed back.
# deliveries rises with every claim and is never reset: the fencing token that a settle
# must present. least(): a row written with the largest integer must not break claims.
# A key that is held while its job waits (queued_key) is free from here on.
# statement_timestamp() is STABLE and bounds the index scan; clock_timestamp() is
# VOLATILE and would walk every scheduled row.
# MATERIALIZED, required: in a joined sub-select a nested loop may run LIMIT twice.
# j.id = ANY(ARRAY(…)): a plain join once flipped to a sequential scan.
# ::text: a payload that Python cannot read must fail in its own job, not here.
# A job that starts by a rate has its turn anew when its lease has lapsed: it is parked
# here instead, and has no id in the answer, which leaves it out.
# %(barred)s: jobs that still run in the process that claims, though their leases ran
# out or were taken over. Whoever gets the row meanwhile, this process must not.
WAITS = f"(j.leased_by IS NOT NULL AND {PACED})"
LEASE = f"""
leased AS (
    UPDATE pgqueue_job AS j
       SET visible_at = CASE WHEN NOT {WAITS}
                             THEN statement_timestamp() + %(lease)s::interval END,
           lane_due_at = CASE WHEN {WAITS} THEN statement_timestamp() END,
           leased_by = CASE WHEN NOT {WAITS} THEN %(worker)s::text END,
           leased_at = CASE WHEN NOT {WAITS} THEN statement_timestamp() END,
           attempt = CASE WHEN j.leased_by IS NULL THEN least(j.attempt, 32766) + 1
                          WHEN {WAITS} THEN greatest(j.attempt - 1, 0)
                          ELSE greatest(j.attempt, 1) END,
           deliveries = least(j.deliveries, 2147483646) + (NOT {WAITS})::integer,
           crashes = {CRASHES},
           runs_alone = {RUNS_ALONE},
           dedup_key = CASE WHEN j.queued_key IS NULL THEN j.dedup_key END,
           errors = {ERRORS}
     WHERE j.id = ANY(ARRAY(SELECT id FROM candidate))
    RETURNING CASE WHEN j.leased_by IS NOT NULL THEN j.id END AS id,
              j.deliveries, j.task, j.args::text, j.kwargs::text,
              j.headers::text, j.queue, j.priority, j.attempt, j.max_attempts,
              j.crashes, j.runs_alone, j.errors->-1->>'kind' AS last_error,
              j.enqueued_at, j.accumulate_key, j.lane, j.lane_policy,
              j.lane_spacing IS NOT NULL AS is_paced,
              j.expires_at <= statement_timestamp() AS expired,
              statement_timestamp() AS claimed_at)
"""
LEASE_CANDIDATES = f"""
{LEASE}
SELECT leased.*, candidate.due_at, candidate.cancel_requested
  FROM leased JOIN candidate ON candidate.id = leased.id
"""

# Of a job j that is found by its id. A bare comparison would let the planner find all
# that is due in the claim index instead, if it takes the table for an empty one.
IS_DUE = "coalesce(j.visible_at <= statement_timestamp(), false)"

# The rows of a band that may be claimed. Of none that runs alone; see above. And no
# message of a pull queue: claimers know of such queues, but one may be new since.
DUE = f"""
j.queue = band.queue AND j.priority = band.priority AND NOT j.runs_alone
              AND j.task <> '{PULL_TASK}'
              AND j.visible_at <= statement_timestamp()
              AND j.id <> ALL(%(barred)s::bigint[])
"""
DUE_FROM_FLOOR = f"{DUE.rstrip()} AND j.visible_at >= band.floor\n"

BANDS = "(SELECT queue, priority FROM band ORDER BY priority DESC, place) AS band"
BANDS_FROM_FLOORS = """unnest(%(queues)s::text[], %(priorities)s::int2[],
                  %(floors)s::timestamptz[], %(limits)s::int4[])
           AS band(queue, priority, floor, most)"""

CANDIDATE = """
candidate AS MATERIALIZED (
    SELECT due.id, due.due_at, due.cancel_requested
      FROM {bands}
     CROSS JOIN LATERAL (
           SELECT j.id, j.visible_at AS due_at,
                  j.cancel_requested_at IS NOT NULL AS cancel_requested
             FROM pgqueue_job j
            WHERE {due}
            ORDER BY j.visible_at LIMIT {most}
              FOR UPDATE SKIP LOCKED) due
     LIMIT %(limit)s),
"""

# Which bands exist is found by a loose index scan: one index probe per band, however
# many rows a band has. It walks over dead index entries, so under a transaction that
# holds back vacuum this form is dear, and the floored one below is for draining.
CLAIM = f"""
WITH RECURSIVE {BANDS_OF_QUEUES},
{CANDIDATE.format(bands=BANDS, due=DUE, most="%(limit)s")}
{LEASE_CANDIDATES}
"""

# The same for bands that are known, each from its floor on: the earliest visible_at
# that may still be found there. Draining then never walks over what it has finished.
# Each band has a limit of its own, so that one claim is shared as its caller wants.
CLAIM_FROM_FLOORS = f"""
WITH
{CANDIDATE.format(bands=BANDS_FROM_FLOORS, due=DUE_FROM_FLOOR, most="band.most")}
{LEASE_CANDIDATES}
"""

# The same two while tasks are held (held.py): they walk over jobs of these, which PARK
# takes out of the way.
HELD = f"""
(j.task = ANY(%(held)s::text[]) AND {IS_FOR_IT}
 AND NOT EXISTS (SELECT FROM pgqueue_lane l
                  WHERE l.name = j.task AND l.probe_id = j.id))"""
CLAIM_BESIDE_HELD = f"""
WITH RECURSIVE {BANDS_OF_QUEUES},
{CANDIDATE.format(bands=BANDS, due=f"{DUE} AND NOT {HELD}", most="%(limit)s")}
{LEASE_CANDIDATES}
"""
CLAIM_FROM_FLOORS_BESIDE_HELD = f"""
WITH
{
    CANDIDATE.format(
        bands=BANDS_FROM_FLOORS,
        due=f"{DUE_FROM_FLOOR} AND NOT {HELD}",
        most="band.most",
    )
}
{LEASE_CANDIDATES}
"""

# What becomes of jobs that are parked: in their lane, or in that of their task. They
# keep their turn: they have been due there for as long as here. No lease, attempt or
# delivery; a key that is held while its job waits stays; a crash counts as in
# LEASE_CANDIDATES.
# A lane is what its newest parked job says. So these say what is said already of the
# lane of their task, if it has a limit or a rate; else they would take it away.
PARK_CANDIDATES = f"""
terms AS MATERIALIZED (
    SELECT parked.task, said.*
      FROM (SELECT DISTINCT task FROM candidate) parked
     CROSS JOIN LATERAL (
           (SELECT j.lane_capacity, j.lane_spacing, j.lane_burst FROM pgqueue_job j
             WHERE j.lane >= parked.task AND j.lane <= parked.task
               AND j.visible_at IS NULL
             ORDER BY j.lane DESC, j.id DESC LIMIT 1)
           UNION ALL
           (SELECT j.lane_capacity, j.lane_spacing, j.lane_burst FROM pgqueue_job j
             WHERE j.lane = parked.task AND j.visible_at IS NOT NULL LIMIT 1)
           LIMIT 1) said
     WHERE said.lane_capacity IS NOT NULL)
UPDATE pgqueue_job AS j
   SET (lane, lane_capacity, lane_spacing, lane_burst) = (
           SELECT j.lane, j.lane_capacity, j.lane_spacing, j.lane_burst
            WHERE j.lane IS NOT NULL
            UNION ALL
           SELECT j.task, coalesce(terms.lane_capacity, {LANE_CAPACITY_MAX}),
                  terms.lane_spacing, terms.lane_burst
             FROM (SELECT 1) one LEFT JOIN terms ON terms.task = j.task
            WHERE j.lane IS NULL),
       lane_due_at = j.visible_at, visible_at = NULL,
       promotion = coalesce(j.promotion, 0),
       leased_by = NULL, leased_at = NULL,
       attempt = CASE WHEN j.leased_by IS NULL THEN j.attempt
                      ELSE greatest(j.attempt - 1, 0) END,
       crashes = {CRASHES},
       runs_alone = {RUNS_ALONE},
       errors = {ERRORS}
 WHERE j.id = ANY(ARRAY(SELECT id FROM candidate))
"""

# Of a band that begins with a job of a held task, all such jobs among its first ones:
# so a band without any costs one probe.
# Locks: row locks on what it parks, until the statement's transaction ends; SKIP
# LOCKED, as a claim.
PARK = f"""
WITH RECURSIVE {BANDS_OF_QUEUES},
ahead AS MATERIALIZED (
    SELECT waiting.id
      FROM {BANDS}
     CROSS JOIN LATERAL (
           SELECT {HELD} AS is_held FROM pgqueue_job j
            WHERE {DUE}
            ORDER BY j.visible_at LIMIT 1) first
     CROSS JOIN LATERAL (
           SELECT j.id, {HELD} AS is_held FROM pgqueue_job j
            WHERE first.is_held AND {DUE}
            ORDER BY j.visible_at LIMIT %(limit)s) waiting
     WHERE waiting.is_held
     LIMIT %(limit)s),
candidate AS MATERIALIZED (
    SELECT j.id, j.task FROM pgqueue_job j
     WHERE j.id = ANY(ARRAY(SELECT id FROM ahead))
       AND {IS_DUE} AND {HELD}
       FOR UPDATE SKIP LOCKED),
{PARK_CANDIDATES}
"""

# Of jobs that are named, those of held tasks whose leases have run out; also of such as
# run alone. Locks: as PARK.
PARK_LAPSED = f"""
WITH candidate AS MATERIALIZED (
    SELECT j.id, j.task FROM pgqueue_job j
     WHERE j.id = ANY(%(ids)s::bigint[]) AND j.id <> ALL(%(barred)s::bigint[])
       AND j.leased_by IS NOT NULL AND {IS_DUE} AND {WAITS_FOR_ITS_TASK}
       FOR UPDATE OF j SKIP LOCKED),
{PARK_CANDIDATES}
"""

# Of a row q of pgqueue_queue: a pause that has ended by itself counts as none.
IS_PAUSED = """
(q.paused_at IS NOT NULL
 AND coalesce(q.paused_until > statement_timestamp(), true))"""

# Likewise one from which workers claim nothing: it is paused, or for others to receive.
# Of a queue without a row, too.
IS_CLOSED = f"({IS_PAUSED} OR coalesce(q.kind <> 'tasks', false))"

# Locks: none. All queues that have a job of any state, by the same loose scan, and
# those of which an operator has said that they are paused or have a limit, or that no
# worker claims from; and whether jobs of fair lanes are parked there. And the names of
# held tasks, of which nothing else is said but when a pause ends; a breaker holds its
# task until it is closed.
SAID = f"""
{IS_CLOSED}, num_nonnulls(q.concurrency, q.rate_spacing) > 0,
CASE WHEN {IS_PAUSED}
     THEN extract(epoch FROM q.paused_until - statement_timestamp())::float8 END"""
KNOWN_QUEUES = f"""
WITH RECURSIVE {LIVE_QUEUES}
SELECT live.queue, q.name IS NOT NULL, {SAID},
       EXISTS (SELECT FROM pgqueue_job j
                WHERE j.queue = live.queue AND j.visible_at IS NULL
                  AND j.lane_policy = 'fair')
  FROM live LEFT JOIN pgqueue_queue q ON q.name = live.queue
UNION ALL
SELECT q.name, true, {SAID}, false FROM pgqueue_queue q
 WHERE ({IS_CLOSED} OR num_nonnulls(q.concurrency, q.rate_spacing) > 0)
   AND q.name <> ALL(ARRAY(SELECT queue FROM live))
UNION ALL
SELECT l.name, NULL, NULL, NULL,
       CASE WHEN l.breaker_trips = 0
            THEN extract(epoch FROM l.paused_until - statement_timestamp())::float8 END,
       NULL
  FROM pgqueue_lane l WHERE {IS_HELD}
"""

# Locks: a row lock on the new row. Two workers that meet a queue at once both succeed.
REMEMBER_QUEUES = """
INSERT INTO pgqueue_queue (name)
SELECT name FROM unnest(%(names)s::text[]) name ORDER BY name
ON CONFLICT (name) DO NOTHING
"""

# Locks: none. Every band of these queues and the time of its first row that is not
# parked; at least one row, for the time. One index probe per band; like CLAIM it walks
# over dead index entries. It does not tell whether somebody holds that row.
SEE = f"""
WITH RECURSIVE {BANDS_SEEN}
SELECT statement_timestamp(), band.queue, band.priority, band.visible_at
  FROM (VALUES (1)) one LEFT JOIN band ON band.visible_at IS NOT NULL
"""


class Claimed(NamedTuple):
    """A job that is leased to this worker, as the claim returned it."""

    id: int
    delivery: int  # The fencing token.
    task: str
    args: str  # JSON text.
    kwargs: str  # JSON text.
    headers: str  # JSON text.
    queue: str
    priority: int
    attempt: int  # 1 for the first.
    max_attempts: int
    crashes: int
    runs_alone: bool
    last_error: str | None  # Its kind: "error", "worker_lost", "lease_expired", ….
    enqueued_at: datetime
    accumulate_key: str | None  # None: its task takes one call at a time.
    lane: str | None
    lane_policy: str | None  # Of a group: what a failure does to the others.
    is_paced: bool  # Whether its lane has a rate.
    expired: bool | None  # None: it has no expiry.
    claimed_at: datetime  # By the database's clock.
    due_at: datetime  # When it had become visible.
    cancel_requested: bool = False  # It ran before, and somebody has cancelled it.


BY_DUE_AT, BY_PRIORITY = attrgetter("due_at"), attrgetter("priority")


class Band(NamedTuple):
    """One priority of one queue, where a claim starts in it, and what it may take."""

    queue: str
    priority: int
    floor: datetime
    limit: int = CLAIM_LIMIT_MAX


class SeenBand(NamedTuple):
    """One priority of one queue, and when its first row is due that is not parked."""

    queue: str
    priority: int
    visible_at: datetime


class Sight(NamedTuple):
    """Bands as they were at one moment, by the database's clock."""

    now: datetime
    bands: list[SeenBand]


class KnownQueue(NamedTuple):
    """A queue that has jobs, or of which an operator has said something."""

    name: str
    has_row: bool
    is_paused: bool  # Or a pull queue: nothing is claimed from it.
    is_limited: bool = False  # An operator says how many are claimed.
    pause_seconds: float | None = None  # Until the pause ends by itself.
    has_turns: bool = False  # Jobs of fair lanes are parked there.


class Known(NamedTuple):
    """The queues that there are, and the tasks whose jobs no claim may run."""

    queues: list[KnownQueue]
    held: list[str]
    held_seconds: float | None = None  # Until one of them is held no more by itself.


def claim(
    cursor: Cursor,
    *,
    queues: Sequence[str],
    worker: str,
    limit: int,
    lease: timedelta,
    barred: Sequence[int] = (),
    held: Sequence[str] = (),
) -> list[Claimed]:
    """
    Lease up to *limit* due jobs of *queues* to *worker*; never waits.

    The result is in run order: highest priority over all queues first, then the
    longest due. It is empty when nothing is due. Where priorities are equal and the
    limit is short, the queues that are named first are served first, so a caller that
    rotates the names is fair.

    Args:
        cursor: An open cursor, Django's or psycopg's. The caller commits.
        queues: Names of queues.
        worker: The name written to the rows; at most 100 characters.
        limit: Jobs, 1 to CLAIM_LIMIT_MAX.
        lease: How long the jobs stay ours without a heartbeat, by the database's
            clock, so worker clocks may drift.
        barred: Ids of jobs to leave alone: they still run where they would go.
        held: Tasks whose jobs are passed over, unless they are in a lane: see park().

    Raises:
        ValueError: *limit* or *lease* is out of range.
    """
    _check(limit, lease)
    params = {
        # A name that is given twice would give each of its jobs twice.
        "queues": list(dict.fromkeys(queues)),
        "worker": worker,
        "limit": limit,
        "lease": lease,
        "barred": list(barred),
        "held": list(held),
    }
    cursor.execute(CLAIM_BESIDE_HELD if held else CLAIM, params)
    return _in_run_order(cursor, limit)


def claim_from_floors(
    cursor: Cursor,
    *,
    bands: Sequence[Band],
    worker: str,
    limit: int,
    lease: timedelta,
    barred: Sequence[int] = (),
    held: Sequence[str] = (),
) -> list[Claimed]:
    """
    Lease up to *limit* due jobs of known *bands*, in their order; never waits.

    No band gives more than its own limit, even if another one has nothing. A band must
    not be given twice.

    Misses rows below a band's floor and bands that are not given: both exist, so a
    caller that runs dry here asks claim() before it believes that nothing is due.
    """
    _check(limit, lease)
    cursor.execute(
        CLAIM_FROM_FLOORS_BESIDE_HELD if held else CLAIM_FROM_FLOORS,
        {
            "queues": [band.queue for band in bands],
            "priorities": [band.priority for band in bands],
            "floors": [band.floor for band in bands],
            "limits": [band.limit for band in bands],
            "worker": worker,
            "limit": limit,
            "lease": lease,
            "barred": list(barred),
            "held": list(held),
        },
    )
    return _in_run_order(cursor, limit)


def park(
    cursor: Cursor,
    *,
    queues: Sequence[str],
    held: Sequence[str],
    barred: Sequence[int] = (),
    limit: int = PARK_LIMIT,
) -> int:
    """
    Park due jobs of held tasks in the lanes of these; return how many.

    Those that stand first in a band of *queues*, and are in no lane; one that has had
    its turn goes back to its own. Each is written once, and no claim walks over it
    again. The caller commits.

    Args:
        cursor: An open cursor.
        queues: Names of queues.
        held: Names of tasks.
        barred: As in claim().
        limit: At most so many.
    """
    cursor.execute(
        PARK,
        {
            "queues": list(dict.fromkeys(queues)),
            "held": list(held),
            "barred": list(barred),
            "limit": limit,
        },
    )
    return cursor.rowcount


def park_lapsed(cursor: Cursor, ids: Sequence[int], barred: Sequence[int] = ()) -> int:
    """
    Park jobs of held tasks, of *ids*, whose leases have run out; return how many.

    As park(), wherever they stand. The caller commits.
    """
    cursor.execute(PARK_LAPSED, {"ids": list(ids), "barred": list(barred)})
    return cursor.rowcount


def known(cursor: Cursor) -> Known:
    """Return every queue that has a job or is paused, and the tasks that are held."""
    cursor.execute(KNOWN_QUEUES)
    rows = [KnownQueue(*row) for row in cursor.fetchall()]
    held = [row for row in rows if row.is_paused is None]
    ends = (row.pause_seconds for row in held if row.pause_seconds is not None)
    return Known(
        [row for row in rows if row.is_paused is not None],
        [row.name for row in held],
        min(ends, default=None),
    )


def known_queues(cursor: Cursor) -> list[KnownQueue]:
    """Return every queue that has a job, is paused, or has a limit of an operator."""
    return known(cursor).queues


def remember_queues(cursor: Cursor, names: Sequence[str]) -> None:
    """Make the rows of queues met for the first time."""
    cursor.execute(REMEMBER_QUEUES, {"names": list(names)})


def see(cursor: Cursor, queues: Sequence[str]) -> Sight:
    """
    Return the bands of *queues*, and what stands first in each.

    Args:
        cursor: An open cursor.
        queues: Names of queues; one that has no job has no band.
    """
    cursor.execute(SEE, {"queues": list(dict.fromkeys(queues))})
    rows = cursor.fetchall()
    bands = [SeenBand(*row[1:]) for row in rows if row[1] is not None]
    return Sight(rows[0][0], bands)


def _check(limit: int, lease: timedelta) -> None:
    if not 1 <= limit <= CLAIM_LIMIT_MAX:
        raise ValueError(f"limit must be from 1 to {CLAIM_LIMIT_MAX}, not {limit}")
    if lease <= timedelta(0):
        raise ValueError(f"lease must be longer than zero, not {lease}")


def _in_run_order(cursor: Cursor, limit: int) -> list[Claimed]:
    claimed = list(map(Claimed._make, cursor.fetchall()))
    # UPDATE … RETURNING promises no order, so run order is restored here. Twice, since
    # sorting is stable and these keys take no Python code.
    claimed.sort(key=BY_DUE_AT)
    claimed.sort(key=BY_PRIORITY, reverse=True)
    assert len(claimed) <= limit, f"{len(claimed)} jobs claimed, {limit} asked for"
    return claimed
