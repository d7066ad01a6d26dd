"""
Fair: a claim from lanes that take turns, so that no key waits for all of another's.

Jobs of a fair lane are parked until they are claimed, whatever there is of them. The
claim takes some of each lane that has any, in turn. So a job that comes later starts
after a turn of the others, however many of theirs were there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from django_pgqueue.bounds import FAIR
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.claim import LEASE, Claimed
from django_pgqueue.queues.lanes import HINT as LANES_HINT

# Instead of a queue's name, before it: it has got jobs of fair lanes.
HINT = "!fair:"

# Lanes with due jobs that one claim looks at, at least and at most.
LANES_MIN, LANES_MAX = 16, 500

# Lanes that it passes by at most, since none of their jobs is due.
LOOKS_MAX = 2_000

# Which jobs have their turn is found by a function (sql/turns.sql), in the snapshot of
# the statement. They are due now, and have waited for nobody's capacity before: with
# their own time, what is older than AGEING_SECONDS would go before all others.
# What is to be known of the lanes is in each row, and there is one at least; what was
# passed by is in the first job's.
# Locks: row locks on the jobs. SKIP LOCKED: another claim's are passed by.
CLAIM_FAIR = f"""
WITH walk AS MATERIALIZED (
    SELECT ids, has_more, last, spent, seconds
      FROM pgqueue_turns(%(queue)s, %(after)s, %(spent)s, %(until)s, %(lanes)s,
                         %(looks)s, %(limit)s, %(passed)s::bigint[])),
candidate AS MATERIALIZED (
    SELECT j.id, statement_timestamp() AS due_at,
           j.cancel_requested_at IS NOT NULL AS cancel_requested
      FROM pgqueue_job j
     WHERE j.id = ANY((SELECT ids FROM walk)::bigint[])
       AND num_nonnulls(j.lane_due_at) = 1 AND j.id <> ALL(%(barred)s::bigint[])
       FOR UPDATE SKIP LOCKED),
{LEASE}
SELECT walk.ids <> '{{}}', walk.has_more, walk.last, walk.spent, walk.seconds,
       CASE WHEN claimed.id IS NULL OR claimed.id = (SELECT min(id) FROM leased)
            THEN ARRAY(SELECT unnest(walk.ids) EXCEPT SELECT id FROM leased) END,
       claimed.*
  FROM walk
  LEFT JOIN (SELECT leased.*, candidate.due_at, candidate.cancel_requested
               FROM leased JOIN candidate ON candidate.id = leased.id) claimed ON true
"""

# How many columns of a row are of the walk.
WALK = 6


def hint_of(queue: str, policy: str | None) -> str:
    """Return what to notify of a job that waits in a lane, in *queue*."""
    return f"{HINT}{queue}" if policy == FAIR else LANES_HINT


def lane_hints(queue: str, in_lanes: int, in_turn: int) -> set[str]:
    """Return the hints, besides the queue, of new jobs of which some are in lanes."""
    if in_turn:
        return {f"{HINT}{queue}"}
    return {LANES_HINT} if in_lanes else set()


class Stand(NamedTuple):
    """
    Where a walk along the lanes of a queue stands.

    Attributes:
        after: Whose turn was the last; "": nobody's.
        spent: How many jobs that lane has had in it.
        until: While no job was due, where the walk began; None: it begins now.
    """

    after: str = ""
    spent: int = 0
    until: str | None = None


class Claim(NamedTuple):
    """
    What came of a claim.

    Attributes:
        jobs: Those that were leased.
        stand: Where the next one goes on.
        has_more: Whether another claim might find more.
        next_seconds: When the next job of a lane is due that has none now, of those
            that were looked at; None: none will be.
        passed: Ids of jobs that had their turn and that somebody has locked.
    """

    jobs: list[Claimed]
    stand: Stand
    has_more: bool
    next_seconds: float | None
    passed: list[int]


def claim_fair(
    cursor: Cursor,
    queue: str,
    *,
    stand: Stand,
    worker: str,
    limit: int,
    lease: timedelta,
    barred: Sequence[int] = (),
    passed: Sequence[int] = (),
) -> Claim:
    """
    Lease up to *limit* due jobs of fair lanes of *queue*, in turn; never waits.

    Args:
        cursor: Planned as those of other claims.
        queue: Its name.
        stand: Where the claim before has ended.
        worker: As in claim.claim(), like all that follow.
        limit: Jobs, at least 1.
        lease: How long they stay ours.
        barred: Ids of jobs to leave alone.
        passed: Ids that a claim a moment ago passed by: others have their turn.
    """
    until = stand.after if stand.until is None else stand.until
    params = {
        "queue": queue,
        "after": stand.after,
        "spent": stand.spent,
        "until": until,
        "lanes": min(max(limit, LANES_MIN), LANES_MAX),
        "looks": LOOKS_MAX,
        "limit": limit,
        "worker": worker,
        "lease": lease,
        "barred": list(barred),
        "passed": list(passed),
    }
    cursor.execute(CLAIM_FAIR, params)
    rows = cursor.fetchall()
    is_due, has_more, last, spent, seconds, _ = rows[0][:WALK]
    return Claim(
        [Claimed._make(row[WALK:]) for row in rows if row[WALK] is not None],
        Stand(last or "", spent or 0, until if has_more and not is_due else None),
        has_more,
        seconds,
        [job_id for row in rows for job_id in row[WALK - 1] or ()],
    )
