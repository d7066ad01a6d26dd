"""
Dead letters: set aside what nobody will fix, or delete it.

To set aside is to say "seen, and not to be done": the job goes to the archive, where
its errors stay readable for as long as those of other finished jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.errors import ROOM_FOR_ONE
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
    return _in_chunks(cursor, SET_ASIDE, ids, {"by": by, "reason": reason})


def delete(cursor: Cursor, ids: Sequence[int]) -> list[int]:
    """Delete dead letters for good; return those that went."""
    return _in_chunks(cursor, DELETE, ids, {})


def _in_chunks(
    cursor: Cursor, statement: str, ids: Sequence[int], params: dict[str, Any]
) -> list[int]:
    done: list[int] = []
    if len(ids) > ROWS_MAX:
        from django_pgqueue.queues.workflows import lock_of

        lock_of(cursor, ids)
    for start in range(0, len(ids), ROWS_MAX):
        chunk = list(ids[start : start + ROWS_MAX])
        cursor.execute(statement, {**params, "ids": chunk})
        done.extend(job_id for (job_id,) in cursor.fetchall())
    return done
