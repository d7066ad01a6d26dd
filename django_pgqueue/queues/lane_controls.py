"""
Lane controls: what an operator says of a lane, in place of what its jobs say.

A pause lets nothing through, a capacity holds in place of that of a limit's jobs, a
weight says how many jobs a fair lane has in a turn, and a release lets the next job
through, whatever else holds it back. What was let through before goes on.

Each holds the lock of a lane that a promotion takes (sql/promote.sql): a promotion that
has counted before is over then, and the next one sees what was said. So nothing is let
through once a pause is committed, and a group never has one job more than it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django_pgqueue.bounds import FAIR
from django_pgqueue.postgres.cursor import Cursor, has_row, one_row
from django_pgqueue.postgres.keys import LANES
from django_pgqueue.postgres.limits import along_index

# Locks: an advisory lock of each lane, until the caller's transaction ends, in the
# order in which promotions take several: so nobody who takes all of his at once can
# deadlock. A statement of its own: what follows it sees what was committed meanwhile.
HOLD = f"""
SELECT count(pg_advisory_xact_lock({LANES}, hashed.key)),
       current_setting('transaction_isolation')
  FROM (SELECT DISTINCT
               mod(hashtextextended(name, 'pgqueue_job'::regclass::oid::bigint),
                   2147483647)::integer AS key
          FROM unnest(%(lanes)s::text[]) name ORDER BY key) hashed
"""

# Locks: the row of the lane; so have all of these. A pause that has ended by itself
# counts as none, and the new one takes its place; so it does of one that a circuit
# breaker has begun: what an operator says holds.
PAUSE = """
INSERT INTO pgqueue_lane AS l (name, paused_at, paused_until, paused_by, pause_reason)
VALUES (%(lane)s, statement_timestamp(),
        coalesce(%(until)s::timestamptz,
                 statement_timestamp() + %(lasts)s::interval),
        nullif(%(by)s::text, ''), nullif(%(reason)s::text, ''))
ON CONFLICT (name) DO UPDATE
   SET paused_at = EXCLUDED.paused_at, paused_until = EXCLUDED.paused_until,
       paused_by = EXCLUDED.paused_by, pause_reason = EXCLUDED.pause_reason,
       breaker_trips = 0, probe_id = NULL
 WHERE l.paused_at IS NULL OR l.paused_until <= statement_timestamp()
    OR l.breaker_trips > 0
RETURNING l.name
"""

# One that has ended by itself is cleared, and does not count as ended by this; that of
# a breaker which waits for its probe goes on until then.
RESUME = """
WITH before AS MATERIALIZED (
    SELECT name, paused_until <= statement_timestamp() AND breaker_trips = 0
           AS has_ended
      FROM pgqueue_lane WHERE name = %(lane)s AND paused_at IS NOT NULL FOR UPDATE),
cleared AS (
    UPDATE pgqueue_lane SET paused_at = NULL, paused_until = NULL, paused_by = NULL,
           pause_reason = NULL, breaker_trips = 0, probe_id = NULL
     WHERE name = (SELECT name FROM before)
    RETURNING name)
SELECT coalesce(before.has_ended, false) FROM before JOIN cleared USING (name)
"""

# Locks: none. What the newest parked job of a lane says.
POLICY = """
SELECT j.lane_capacity IS NULL, j.lane_policy FROM pgqueue_job j
 WHERE j.lane >= %(lane)s AND j.lane <= %(lane)s AND j.visible_at IS NULL
 ORDER BY j.lane DESC, j.id DESC LIMIT 1
"""

# Without a value, no row is made. Somebody else may make it meanwhile.
SET_CAPACITY, SET_WEIGHT = (
    f"""
WITH unset AS (
    UPDATE pgqueue_lane SET {column} = NULL
     WHERE name = %(lane)s AND {column} IS NOT NULL AND %(value)s::integer IS NULL
    RETURNING name),
given AS (
    INSERT INTO pgqueue_lane AS l (name, {column})
    SELECT %(lane)s, %(value)s::integer WHERE %(value)s::integer IS NOT NULL
    ON CONFLICT (name) DO UPDATE SET {column} = EXCLUDED.{column}
     WHERE l.{column} IS DISTINCT FROM EXCLUDED.{column}
    RETURNING name)
SELECT name FROM unset UNION ALL SELECT name FROM given
"""
    for column in ("capacity", "weight")
)

# A lane has a row only while there is something to say of it.
FORGET = """
DELETE FROM pgqueue_lane
 WHERE name = %(lane)s AND num_nonnulls(capacity, paused_at, spacing, weight) = 0
"""

# One job, whatever else holds its lane back: of a limit the one that has been due for
# longest, of a group the first that is due. A limit then has one more than it takes,
# and a fair lane one before its turn. A group never has: where a job of it waits for
# its next attempt, that is parked until then, as one of a limit is; a promotion passes
# it by until it is due, and takes it first then. Where none waits so, nothing is let
# through. (In a group with a rate it is parked already, and passed by this once.)
# The next one is looked at first, so that nobody makes way for nobody. Jobs that were
# let through are counted one further than may be: where somebody's SQL has let two
# through, one that makes way is not enough.
# By a rate, the job has its turn now, and those after it wait for longer: so it starts
# no more than this one job earlier.
# Written along the indexes as promote.sql is: run it where plans are IN_ORDER.
# Locks: of at most two jobs of the lane, the rows, and that of the lane. SKIP LOCKED:
# a job that somebody cancels, changes or claims is not waited for; nothing is done.
RELEASE = """
WITH lane AS MATERIALIZED (
    SELECT newest.lane_capacity IS NULL AS is_group, newest.lane_spacing,
           newest.lane_burst
      FROM (SELECT j.lane_capacity, j.lane_spacing, j.lane_burst FROM pgqueue_job j
             WHERE j.lane >= %(lane)s AND j.lane <= %(lane)s AND j.visible_at IS NULL
             ORDER BY j.lane DESC, j.id DESC LIMIT 1) newest),
through AS MATERIALIZED (
    SELECT count(*) AS jobs
      FROM (SELECT FROM pgqueue_job j
             WHERE j.lane >= %(lane)s AND j.lane <= %(lane)s
               AND j.visible_at IS NOT NULL
             LIMIT 2) held),
next AS MATERIALIZED (
    (SELECT j.id FROM pgqueue_job j
      WHERE (SELECT is_group FROM lane)
        AND j.lane >= %(lane)s AND j.lane <= %(lane)s AND j.visible_at IS NULL
        AND j.lane_due_at <= statement_timestamp()
      ORDER BY j.lane, j.id LIMIT 1)
     UNION ALL
    (SELECT j.id FROM pgqueue_job j
      WHERE NOT (SELECT is_group FROM lane) AND j.lane >= %(lane)s
        AND (j.lane, j.lane_due_at) <= (%(lane)s, statement_timestamp())
        AND j.visible_at IS NULL AND j.lane_capacity IS NOT NULL
      ORDER BY j.lane, j.lane_due_at LIMIT 1)),
free AS MATERIALIZED (
    SELECT j.id FROM pgqueue_job j
     WHERE j.id = ANY(ARRAY(SELECT id FROM next)) AND num_nonnulls(j.lane_due_at) = 1
       FOR UPDATE SKIP LOCKED),
in_the_way AS MATERIALIZED (
    SELECT j.id FROM pgqueue_job j
     WHERE (SELECT is_group AND jobs = 1 FROM lane, through)
       AND EXISTS (SELECT FROM free)
       AND j.lane >= %(lane)s AND j.lane <= %(lane)s
       AND j.visible_at > statement_timestamp() AND j.leased_by IS NULL
       AND j.deliveries > 0
     ORDER BY j.lane, j.id LIMIT 1
       FOR UPDATE SKIP LOCKED),
put_off AS (
    UPDATE pgqueue_job AS j
       SET lane_due_at = j.visible_at, visible_at = NULL,
           promotion = coalesce(j.promotion, 0)
     WHERE j.id = ANY(ARRAY(SELECT id FROM in_the_way))
    RETURNING j.id),
released AS (
    UPDATE pgqueue_job AS j
       SET visible_at = statement_timestamp(), lane_due_at = NULL,
           promotion = nextval('pgqueue_promotion')
     WHERE j.id = ANY(ARRAY(SELECT id FROM free))
       AND (SELECT NOT is_group OR jobs = (SELECT count(*) FROM put_off)
              FROM lane, through)
    RETURNING j.id, j.queue),
turn AS (
    INSERT INTO pgqueue_lane AS l (name, spacing, burst, full_at, unclaimed)
    SELECT %(lane)s, spacing, least(greatest(lane_burst, 1), 100000),
           statement_timestamp() + make_interval(secs => spacing), 1
      FROM released, lane
     CROSS JOIN LATERAL (
           SELECT least(greatest(lane_spacing, 0.000001), 2678400) AS spacing) rate
     WHERE lane_spacing IS NOT NULL
    ON CONFLICT (name) DO UPDATE
       SET spacing = EXCLUDED.spacing, burst = EXCLUDED.burst,
           full_at = greatest(l.full_at, statement_timestamp())
               + make_interval(secs => EXCLUDED.spacing),
           unclaimed = l.unclaimed + 1)
SELECT (SELECT id FROM released), (SELECT queue FROM released),
       (SELECT id FROM put_off), (SELECT id FROM next)
"""

# A claim passes over a job that was tried before while its task is held, but for this.
# Locks: the row of the task's lane.
LET_BE_CLAIMED = """
UPDATE pgqueue_lane AS l SET probe_id = j.id
  FROM pgqueue_job j
 WHERE j.id = %(id)s AND l.name = j.task AND l.paused_at IS NOT NULL
"""

# Locks: none. The longest pauses first.
PAUSED = """
SELECT l.name, extract(epoch FROM statement_timestamp() - l.paused_at)::float8
           AS seconds, l.paused_by, l.pause_reason
  FROM pgqueue_lane l
 WHERE l.paused_at < statement_timestamp() - make_interval(secs => %(seconds)s)
   AND l.breaker_trips = 0
   AND (l.paused_until IS NULL OR l.paused_until > statement_timestamp())
 ORDER BY l.paused_at LIMIT %(limit)s
"""

# Locks: none. The longest first; those of a breaker are few.
TRIPPED = """
SELECT l.name, extract(epoch FROM statement_timestamp() - l.paused_at)::float8
           AS seconds,
       extract(epoch FROM l.paused_until - statement_timestamp())::float8
           AS left_seconds, l.breaker_trips AS trips, l.pause_reason AS reason
  FROM pgqueue_lane l
 WHERE l.paused_at IS NOT NULL AND l.breaker_trips > 0
 ORDER BY l.breaker_trips DESC, l.paused_at LIMIT %(limit)s
"""


# Of a lane in which no job waits.
UNKNOWN = "unknown"


class Released(NamedTuple):
    """
    What came of a release.

    Attributes:
        job: The id of the job that was let through; None: none was.
        queue: Its queue.
        put_off: Of a group, the job that waits for its next attempt and that the others
            do not wait for any more.
        next_id: The job that was meant, also where it was not let through; None: none
            is due.
    """

    job: int | None
    queue: str | None
    put_off: int | None
    next_id: int | None


def hold(cursor: Cursor, lanes: Sequence[str]) -> str:
    """
    Wait for promotions of *lanes*, and hold new ones up until the transaction ends.

    Whoever acts on several holds them all at once, before the first act.

    Returns:
        The isolation level of the transaction.
    """
    cursor.execute(HOLD, {"lanes": list(lanes)})
    _, isolation = one_row(cursor)
    return str(isolation)


def pause(
    cursor: Cursor,
    lane: str,
    *,
    by: str = "",
    reason: str = "",
    until: datetime | timedelta | None = None,
) -> bool:
    """
    Let nothing through; False: it was paused already, and all of that stays as it is.

    The lane that has the name of a task is that of all its jobs: see held.py.

    Args:
        cursor: An open cursor; the caller commits.
        lane: Its name; it need not have any job.
        by: Who pauses, at most 150 characters; "": nobody is named.
        reason: Why; "": not said.
        until: When it ends by itself, or how long it lasts; None: it does not.
    """
    hold(cursor, [lane])
    is_length = isinstance(until, timedelta)
    return has_row(
        cursor,
        PAUSE,
        lane=lane,
        by=by,
        reason=reason,
        until=None if is_length else until,
        lasts=until if is_length else None,
    )


def resume(cursor: Cursor, lane: str) -> bool:
    """
    End the pause of *lane*, or close its breaker; False: it was not paused, or no more.

    To be promoted after the commit, whatever the answer.
    """
    hold(cursor, [lane])
    cursor.execute(RESUME, {"lane": lane})
    row = cursor.fetchone()
    cursor.execute(FORGET, {"lane": lane})
    return row is not None and not row[0]


def set_capacity(cursor: Cursor, lane: str, capacity: int | None) -> bool:
    """
    Let so many of a limit through at a time, whatever its jobs say.

    To be promoted after the commit.

    Args:
        cursor: An open cursor; the caller commits.
        lane: Its name; it need not have any job.
        capacity: At least 1; None: what the jobs say.

    Returns:
        False: so it was before.

    Raises:
        ValueError: It is a group, by its newest parked job: it takes one; or fair.
    """
    hold(cursor, [lane])
    is_group, policy = _policy(cursor, lane)
    if capacity is not None and is_group:
        raise ValueError(
            f"lane {lane!r} is a group: its jobs run one at a time, in order; for "
            f"several at a time, their task says limit in place of group."
        )
    if capacity is not None and policy == FAIR:
        raise ValueError(
            f"lane {lane!r} takes turns with others, any number at a time: give it "
            f"a weight, which is how many jobs it has in a turn."
        )
    return _set(cursor, SET_CAPACITY, lane, capacity)


def set_weight(cursor: Cursor, lane: str, weight: int | None) -> bool:
    """
    Give a fair lane so many jobs in a turn; it holds from the next claim on.

    Args:
        cursor: An open cursor; the caller commits.
        lane: Its name; it need not have any job.
        weight: At least 1; None: one.

    Returns:
        False: so it was before.

    Raises:
        ValueError: It takes no turns, by its newest parked job.
    """
    hold(cursor, [lane])
    if weight is not None and _policy(cursor, lane)[1] not in {FAIR, UNKNOWN}:
        raise ValueError(
            f"lane {lane!r} takes no turns with others: its jobs have no fair_by, "
            f"which their task or their queue says."
        )
    return _set(cursor, SET_WEIGHT, lane, weight)


def _set(cursor: Cursor, statement: str, lane: str, value: int | None) -> bool:
    is_done = has_row(cursor, statement, lane=lane, value=value)
    cursor.execute(FORGET, {"lane": lane})
    return is_done


def _policy(cursor: Cursor, lane: str) -> tuple[bool, str | None]:
    """Return whether *lane* is a group, and its policy; UNKNOWN: no job waits."""
    cursor.execute(POLICY, {"lane": lane})
    return cursor.fetchone() or (False, UNKNOWN)


def release(cursor: Cursor, lane: str) -> Released:
    """
    Let the next due job of *lane* through, whatever holds it back but a group's order.

    Args:
        cursor: In a READ COMMITTED transaction, planned Plans.IN_ORDER.
        lane: Its name.

    Raises:
        ValueError: The transaction is of another level: it would count what it saw
            before it got the lock.
    """
    isolation = hold(cursor, [lane])
    if isolation != "read committed":
        raise ValueError(
            f"release() needs READ COMMITTED, and this transaction is {isolation}: it "
            f"would count what it saw before it got the lane's lock."
        )
    with along_index(cursor):
        cursor.execute(RELEASE, {"lane": lane})
        released = Released(*one_row(cursor))
    if released.job is not None:
        cursor.execute(LET_BE_CLAIMED, {"id": released.job})
    return released
