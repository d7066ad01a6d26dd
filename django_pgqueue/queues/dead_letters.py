"""
Dead letters: set aside, deleted, or sent back to a queue.

An operator sets aside what nobody will fix, or deletes it.

To set aside is to say "seen, and not to be done": the job goes to the archive, where
its errors stay readable for as long as those of other finished jobs.

Redrive: a dead letter back to a queue. And retry: a waiting job becomes due now.

Both are what an operator does after fixing a cause. A redriven job keeps its id, its
errors and its deliveries, and starts again at attempt 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django_pgqueue.bounds import PULL_TASK
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.errors import ROOM_FOR_ONE
from django_pgqueue.queues.fair import hint_of
from django_pgqueue.queues.settle import ARCHIVED_COLUMNS, KEPT_COLUMNS

# Rows per statement: an operator may select a hundred thousand.
ROWS_MAX = 1_000

# Locks: row locks on the chosen dead letters, until the caller's transaction ends;
# SKIP LOCKED, so that operators, redrives and the purge share them without waiting.
# Raises 23514 when the archive has no partition for today: the caller makes it.
SET_ASIDE = f"""
WITH chosen AS MATERIALIZED (
    SELECT id FROM pgqueue_dead_letter WHERE id = ANY(%(ids)s::bigint[])
       FOR UPDATE SKIP LOCKED),
gone AS (
    DELETE FROM pgqueue_dead_letter AS j
     WHERE j.id = ANY(ARRAY(SELECT id FROM chosen))
    RETURNING j.*, {ROOM_FOR_ONE} || jsonb_strip_nulls(jsonb_build_object(
        'kind', 'set_aside', 'by', nullif(%(by)s::text, ''),
        'at', statement_timestamp(), 'dead_for', j.reason,
        'message', nullif(%(reason)s::text, ''))) AS all_errors)
INSERT INTO pgqueue_archived_job ({KEPT_COLUMNS}, errors, state, started_at,
                                  finished_at, worker)
SELECT {ARCHIVED_COLUMNS}, all_errors, 'cancelled', started_at, statement_timestamp(),
       worker
  FROM gone
RETURNING id
"""

# Locks: as SET_ASIDE.
DELETE = """
DELETE FROM pgqueue_dead_letter WHERE id = ANY(ARRAY(
    SELECT id FROM pgqueue_dead_letter WHERE id = ANY(%(ids)s::bigint[])
       FOR UPDATE SKIP LOCKED))
RETURNING id
"""


def set_aside(
    cursor: Cursor, ids: Sequence[int], *, by: str = "", reason: str = ""
) -> list[int]:
    """
    Move dead letters to the archive, as cancelled; return those that moved.

    Args:
        cursor: An open cursor; the caller commits.
        ids: Of dead letters; those that are none, or are locked, are passed over.
        by: Who sets them aside, for their errors; "": nobody is named.
        reason: Why; "": not said.

    Raises:
        CheckViolation: (23514, Django's IntegrityError) no partition for today.
    """
    params = {"by": by, "reason": reason}
    return [row[0] for row in _rows_in_chunks(cursor, SET_ASIDE, ids, params)]


def delete(cursor: Cursor, ids: Sequence[int]) -> list[int]:
    """Delete dead letters for good; return those that went."""
    return [row[0] for row in _rows_in_chunks(cursor, DELETE, ids, {})]


# Columns that a redriven job takes from the dead letter as they are. expires_at is
# left behind: it has passed, or soon will, and the operator wants the job to run.
# run_after too: it means now.
MOVED = (
    "id, task, args, kwargs, headers, priority, enqueued_at, max_attempts, deliveries,"
    " accumulate_key, lane, lane_capacity, lane_spacing, lane_burst, lane_policy,"
    " errors, progress, workflow_id, parent_id, message_id, schedule_id"
)

HEADERS = """
headers - 'pgqueue.unknown_since' - 'pgqueue.planned'
    || jsonb_build_object('pgqueue.deliveries_before', deliveries)
    || CASE WHEN %(once)s::boolean
            THEN jsonb_build_object('pgqueue.reprocessed_at', statement_timestamp())
            ELSE '{}' END
"""

# What a rule may redrive: what none has redriven, by the row as it is when locked.
MAY = "NOT (%(once)s::boolean AND headers ? 'pgqueue.reprocessed_at')"

# Nobody would take a message in a queue of tasks, or a job in one of messages.
FITS = f"""
(%(queue)s::text IS NULL
 OR (task = '{PULL_TASK}') = EXISTS (SELECT FROM pgqueue_queue q
                                      WHERE q.name = %(queue)s AND q.kind = 'pull'))
"""

# Locks: row locks on the chosen dead letters; SKIP LOCKED, so that two operators (or
# the purge) share them without waiting. Those that have no dedup key.
# promotion: its id is older than those that are stored now; see sql/promote.sql.
# headers: the mark of an unknown task goes, so that its grace period starts anew; and
# the deliveries so far are noted, so that DELIVERIES_MAX counts anew.
REDRIVE = f"""
WITH chosen AS MATERIALIZED (
    SELECT id FROM pgqueue_dead_letter
     WHERE id = ANY(%(ids)s::bigint[]) AND dedup_key IS NULL AND queued_key IS NULL
       AND {MAY} AND {FITS}
       FOR UPDATE SKIP LOCKED),
gone AS (
    DELETE FROM pgqueue_dead_letter
     WHERE id = ANY(ARRAY(SELECT id FROM chosen)) RETURNING *)
INSERT INTO pgqueue_job ({MOVED}, queue, attempt, crashes, promotion)
SELECT {MOVED.replace("headers", HEADERS)},
       coalesce(%(queue)s, queue), 0, 0, 0
  FROM gone ORDER BY id
RETURNING id, queue, lane, lane_policy
"""

# Of those that have one, which they take again. Locks: as REDRIVE, and of each key its
# entry in the unique index, in the order of the keys: this waits for whoever has taken
# one and not committed, and for nobody else. A dead letter whose key a live job has
# stays where it is: so what was inserted is deleted, in the same statement, and a job
# is in exactly one table in every snapshot.
REDRIVE_KEYED = f"""
WITH chosen AS MATERIALIZED (
    SELECT * FROM pgqueue_dead_letter
     WHERE id = ANY(%(ids)s::bigint[])
       AND coalesce(queued_key, dedup_key) IS NOT NULL
       AND {MAY} AND {FITS}
       FOR UPDATE SKIP LOCKED),
moved AS (
    INSERT INTO pgqueue_job ({MOVED}, dedup_key, queued_key, queue, attempt, crashes,
                             promotion)
    SELECT {MOVED.replace("headers", HEADERS)}, coalesce(queued_key, dedup_key),
           queued_key, coalesce(%(queue)s, queue), 0, 0, 0
      FROM chosen ORDER BY coalesce(queued_key, dedup_key) COLLATE "C", id DESC
    ON CONFLICT (dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
    RETURNING id, queue, lane, lane_policy),
gone AS (
    DELETE FROM pgqueue_dead_letter WHERE id = ANY(ARRAY(SELECT id FROM moved)))
SELECT id, queue, lane, lane_policy FROM moved ORDER BY id
"""

# Locks: none. Dead letters whose key a live job has, and which one.
HOLDERS = """
SELECT d.id, j.id FROM pgqueue_dead_letter d
  JOIN pgqueue_job j ON j.dedup_key = coalesce(d.queued_key, d.dedup_key)
 WHERE d.id = ANY(%(ids)s::bigint[])
"""

# Locks: row locks on the chosen jobs; SKIP LOCKED passes over what is being claimed.
# Only jobs that wait for a time: a leased one is running, and one that is parked and
# due waits for others.
RETRY_NOW = """
UPDATE pgqueue_job
   SET visible_at = CASE WHEN visible_at IS NOT NULL THEN statement_timestamp() END,
       lane_due_at = CASE WHEN visible_at IS NULL THEN statement_timestamp() END,
       promotion = coalesce(promotion, 0)
 WHERE id = ANY(ARRAY(
       SELECT id FROM pgqueue_job
        WHERE id = ANY(%(ids)s::bigint[]) AND leased_by IS NULL
          AND coalesce(visible_at, lane_due_at) > statement_timestamp()
          FOR UPDATE SKIP LOCKED))
RETURNING id, queue, CASE WHEN visible_at IS NULL THEN lane END, lane_policy
"""

assert set(MOVED.split(", ")) <= {*KEPT_COLUMNS.split(", "), "errors"}


class Moved(NamedTuple):
    """A job that will run: at once, or when its lane lets it through."""

    id: int
    queue: str
    lane: str | None
    lane_policy: str | None


def redrive(
    cursor: Cursor, ids: Sequence[int], *, queue: str | None = None, once: bool = False
) -> list[Moved]:
    """
    Move dead letters back to their queue, or all of them to *queue*.

    Args:
        cursor: An open cursor; the caller commits, and sends hints() then.
        ids: Of dead letters.
        queue: None: to where each one came from. Messages go to pull queues alone, and
            jobs to no such.
        once: Note on each that a rule has redriven it, and pass over what has that
            note.

    Returns:
        Each that moved; an id that is missing is no dead letter (any
        more), or somebody else is moving it, or a live job has its dedup key: holders()
        tells which.
    """
    params = {"queue": queue, "once": once}
    moved = list(map(Moved._make, _rows_in_chunks(cursor, REDRIVE, ids, params)))
    if len(moved) < len(ids):
        # Dead letters with a key, dead letters of somebody else, or none at all.
        left = sorted({*ids} - {job.id for job in moved})
        moved += map(Moved._make, _rows_in_chunks(cursor, REDRIVE_KEYED, left, params))
    return moved


def hints(moved: Iterable[Moved]) -> list[str]:
    """Return what to notify of jobs that were moved, each hint once."""
    return sorted(
        {
            job.queue if job.lane is None else hint_of(job.queue, job.lane_policy)
            for job in moved
        }
    )


def holders(cursor: Cursor, ids: Sequence[int]) -> dict[int, int]:
    """
    Return which job has the dedup key of which dead letter, of those in *ids*.

    Args:
        cursor: An open cursor.
        ids: Of dead letters; others are left out.
    """
    return dict(_rows_in_chunks(cursor, HOLDERS, ids, {}, locks=False))


def retry_now(cursor: Cursor, ids: Sequence[int]) -> list[Moved]:
    """Make waiting jobs due now; return each that was waiting."""
    rows = _rows_in_chunks(cursor, RETRY_NOW, ids, {}, locks=False)
    return list(map(Moved._make, rows))


def _rows_in_chunks(
    cursor: Cursor,
    statement: str,
    ids: Sequence[int],
    params: dict[str, Any],
    *,
    locks: bool = True,
) -> list[tuple[Any, ...]]:
    """Run a statement of so many ids; lock the workflows of all first, if several."""
    found: list[tuple[Any, ...]] = []
    if locks and len(ids) > ROWS_MAX:
        from django_pgqueue.queues.workflows import lock_of

        lock_of(cursor, ids)
    for start in range(0, len(ids), ROWS_MAX):
        chunk = list(ids[start : start + ROWS_MAX])
        cursor.execute(statement, {**params, "ids": chunk})
        found += cursor.fetchall()
    return found
