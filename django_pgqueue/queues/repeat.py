"""
Repeat: calls that met a late job are made again, once they have committed.

A call in a transaction must be followed by a job that starts after its commit. While
the job that has its key is young, the call keeps it from being claimed until then. One
that has been due for long is let go, so that callers without a pause cannot keep it
from running, and the call is written down (pgqueue_dedup_call) beside what its
transaction writes. Whoever finds it here knows that it has committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django_pgqueue.postgres.cursor import Cursor

# Calls per statement.
REPEAT_CALLS_MAX = 200

# Locks: those of pgqueue_repeat_calls(), which its file in sql/ names.
REPEAT = """
SELECT repeated.out_id, repeated.out_queue, repeated.out_outcome
  FROM pgqueue_repeat_calls(%(limit)s) AS repeated
"""

# Locks: row locks on the calls that have committed, until the caller's transaction
# ends; SKIP LOCKED: those of another call, which stands for them.
FORGET_CALLS = """
DELETE FROM pgqueue_dedup_call WHERE id = ANY(ARRAY(
    SELECT id FROM pgqueue_dedup_call WHERE holder_id = ANY(%(ids)s::bigint[])
       FOR UPDATE SKIP LOCKED))
"""


class Repeated(NamedTuple):
    """A call that was made again."""

    # Of the job that stands for it.
    id: int
    queue: str
    # stored; skipped: another one waits, or has the period. waits: somebody has taken
    # the key and not committed, so it is tried again; and so is one that failed: ….
    outcome: str


def repeat_calls(cursor: Cursor, *, limit: int = REPEAT_CALLS_MAX) -> list[Repeated]:
    """
    Make calls again that were written down and have committed; never waits for long.

    Args:
        cursor: An open cursor; the caller commits, and wakes the queues of what was
            stored.
        limit: Calls.
    """
    cursor.execute(REPEAT, {"limit": limit})
    return [Repeated(*row) for row in cursor.fetchall()]


def forget_calls(cursor: Cursor, holders: Sequence[int]) -> None:
    """Take back the calls that were told of the jobs *holders*, which are cancelled."""
    cursor.execute(FORGET_CALLS, {"ids": list(holders)})
