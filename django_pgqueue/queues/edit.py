"""
Edit: other arguments for a job that waits, or for a dead letter.

What has been delivered before may have had effects under its old arguments. Its header
pgqueue.edits then counts the edits and goes into the idempotency key, so that another
system does not take the edited job for the one that it has seen.

Where the arguments say another lane, the job moves there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.errors import ROOM_FOR_ONE

EDITS = "pgqueue.edits"

# Locks: a row lock on the job or the dead letter, until the caller's transaction ends.
# SKIP LOCKED: a row that is being claimed, settled, redriven or purged is not waited
# for; the caller asks again. One id, so both tables are one index probe.
# Two statements, since FOR UPDATE goes with no UNION.
LOCK_JOB = """
SELECT j.task, j.args::text, j.kwargs::text, j.queue, j.lane,
       j.leased_by IS NOT NULL
  FROM pgqueue_job j WHERE j.id = %(id)s FOR UPDATE SKIP LOCKED
"""
LOCK_DEAD_LETTER = """
SELECT j.task, j.args::text, j.kwargs::text, j.queue, j.lane, false
  FROM pgqueue_dead_letter j WHERE j.id = %(id)s FOR UPDATE SKIP LOCKED
"""

# What both tables get. A value of the header that SQL wrote and that is no number
# counts as none.
CHANGES = f"""
args = %(args)s::jsonb, kwargs = %(kwargs)s::jsonb,
headers = CASE WHEN j.deliveries = 0 THEN j.headers
    ELSE j.headers || jsonb_build_object('{EDITS}', 1 + CASE
        WHEN j.headers ->> '{EDITS}' ~ '^[0-9]{{1,9}}$'
        THEN (j.headers ->> '{EDITS}')::bigint ELSE 0 END) END,
errors = {ROOM_FOR_ONE} || jsonb_strip_nulls(jsonb_build_object(
    'kind', 'edited', 'by', nullif(%(by)s::text, ''), 'at', statement_timestamp(),
    'message', 'Its arguments were edited.'))
"""

# Locks: the row lock that the caller has already.
EDIT_JOB = f"""
UPDATE pgqueue_job AS j SET {CHANGES}
 WHERE j.id = %(id)s AND j.leased_by IS NULL
RETURNING j.id
"""
EDIT_DEAD_LETTER = f"""
UPDATE pgqueue_dead_letter AS j SET {CHANGES} WHERE j.id = %(id)s RETURNING j.id
"""

# What both tables get of another lane.
OF_LANE = """
lane = %(lane)s::text, lane_capacity = %(lane_capacity)s::integer,
lane_spacing = %(lane_spacing)s::float8, lane_burst = %(lane_burst)s::integer,
lane_policy = %(lane_policy)s::text
"""

# Parked, whatever the lane that it leaves has let it do: so the one that it comes into
# never has more than it takes, and no lock of a lane is needed. It is as long due as
# it was, and out of a lane at once, or at its time: claims keep floors.
# Locks: the row lock that the caller has already.
MOVE_JOB = f"""
UPDATE pgqueue_job AS j
   SET {OF_LANE},
       lane_due_at = CASE WHEN %(lane)s::text IS NOT NULL THEN coalesce(
           j.lane_due_at, greatest(j.visible_at, statement_timestamp())) END,
       visible_at = CASE WHEN %(lane)s::text IS NULL THEN greatest(
           coalesce(j.visible_at, j.lane_due_at), statement_timestamp()) END,
       promotion = 0
 WHERE j.id = %(id)s AND j.leased_by IS NULL
RETURNING j.queue
"""
# A redrive takes it into its lane.
MOVE_DEAD_LETTER = f"""
UPDATE pgqueue_dead_letter AS j SET {OF_LANE} WHERE j.id = %(id)s
"""


class Editable(NamedTuple):
    """A job or dead letter whose row this transaction has locked."""

    task: str
    args: str  # JSON text.
    kwargs: str  # JSON text.
    queue: str
    lane: str | None
    is_leased: bool  # Some worker may be running it: it cannot be edited.


def lock(cursor: Cursor, job_id: int) -> Editable | None:
    """
    Lock the row of a live job or a dead letter; None: there is none, or it is locked.

    Call it, and edit() after it, inside one transaction.
    """
    for statement in (LOCK_JOB, LOCK_DEAD_LETTER):
        cursor.execute(statement, {"id": job_id})
        row = cursor.fetchone()
        if row is not None:
            return Editable(*row)
    return None


def edit(cursor: Cursor, job_id: int, *, args: str, kwargs: str, by: str = "") -> bool:
    """
    Replace the arguments of a row that lock() has locked.

    Args:
        cursor: The one that locked it, in the same transaction.
        job_id: Of the row.
        args: A JSON array as text.
        kwargs: A JSON object as text.
        by: Who edits, for the errors of the job; "": nobody is named.

    Returns:
        False: it is leased, or gone.
    """
    params = {"id": job_id, "args": args, "kwargs": kwargs, "by": by}
    for statement in (EDIT_JOB, EDIT_DEAD_LETTER):
        cursor.execute(statement, params)
        if cursor.fetchone() is not None:
            return True
    return False


def move(
    cursor: Cursor, job_id: int, *, lane: str | None, columns: Mapping[str, Any]
) -> str | None:
    """
    Move a row that lock() has locked into another lane.

    A job is parked there, to be promoted after the commit; so is the lane that it left.

    Args:
        cursor: The one that locked it, in the same transaction.
        job_id: Of the row.
        lane: The name; None: it waits for nobody from now on.
        columns: What the lane takes; see OF_LANE in queues/enqueue.py.

    Returns:
        The queue of the job; None: it is a dead letter, which nobody waits for.
    """
    params = {**columns, "id": job_id, "lane": lane}
    cursor.execute(MOVE_JOB, params)
    row = cursor.fetchone()
    if row is None:
        cursor.execute(MOVE_DEAD_LETTER, params)
        return None
    return str(row[0])
