"""
Find: where a job is, and in which state.

A job is in exactly one of three tables in every snapshot, because the statements that
move it delete and insert at once. One statement over all three therefore never misses
it, where three queries one after another could.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django_pgqueue.live_states import live_state
from django_pgqueue.postgres.cursor import Cursor

# Locks: none.
FIND = f"""
SELECT id, {live_state()},
       attempt, max_attempts, NULL::text, NULL::text, errors::text
  FROM pgqueue_job WHERE id = ANY(%(ids)s::bigint[])
UNION ALL
SELECT id, state, attempt, max_attempts, result::text, NULL, errors::text
  FROM pgqueue_archived_job WHERE id = ANY(%(ids)s::bigint[])
UNION ALL
SELECT id, 'dead', attempt, max_attempts, NULL, reason, errors::text
  FROM pgqueue_dead_letter WHERE id = ANY(%(ids)s::bigint[])
"""


class Found(NamedTuple):
    """What a job has come to."""

    id: int
    status: str
    attempt: int
    max_attempts: int
    result: str | None  # JSON text.
    reason: str | None
    errors: str  # JSON text.


def find(cursor: Cursor, ids: Sequence[int]) -> dict[int, Found]:
    """Return what is known of the jobs *ids*; those that are nowhere are left out."""
    cursor.execute(FIND, {"ids": list(ids)})
    return {row[0]: Found(*row) for row in cursor.fetchall()}
