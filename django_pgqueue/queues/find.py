"""
Find: where jobs are and in which state, and all that is known of one.

A job is in exactly one of three tables in every snapshot, because the statements that
move it delete and insert at once. One statement over all three therefore never misses
it, where three queries one after another could.

Tagged: the jobs that have a tag, when they are few.

The index of tags finds them, but in no order: a tag that half of all jobs have is found
sooner by looking at the latest jobs. So the answer is the few, or that there are more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from django_pgqueue.live_states import live_state
from django_pgqueue.postgres.cursor import Cursor, record

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


# Locks: none.
LIVE = "SELECT id FROM pgqueue_job WHERE id = ANY(%(ids)s::bigint[])"


def live(cursor: Cursor, ids: Sequence[int]) -> set[int]:
    """
    Return those of *ids* that are in the queue.

    For many of which most have not ended: find() looks into every day of the archive.
    """
    cursor.execute(LIVE, {"ids": list(ids)})
    return {job_id for (job_id,) in cursor.fetchall()}


# Locks: none. Payloads as text, decoded by whoever wants them: PostgreSQL stores JSON
# that Python cannot read.
READ = f"""
SELECT id, {live_state()}, task, queue, args::text, kwargs::text, headers::text,
       priority, attempt, max_attempts, run_after, enqueued_at, leased_at,
       NULL::timestamptz, leased_by, errors::text, NULL::text, NULL::text
  FROM pgqueue_job WHERE id = %(id)s
UNION ALL
SELECT id, state, task, queue, args::text, kwargs::text, headers::text,
       priority, attempt, max_attempts, run_after, enqueued_at, started_at,
       finished_at, worker, errors::text, result::text, NULL
  FROM pgqueue_archived_job WHERE id = %(id)s
UNION ALL
SELECT id, 'dead', task, queue, args::text, kwargs::text, headers::text,
       priority, attempt, max_attempts, run_after, enqueued_at, started_at,
       finished_at, worker, errors::text, NULL, reason
  FROM pgqueue_dead_letter WHERE id = %(id)s
"""


class Row(NamedTuple):
    """One job, as its table has it."""

    id: int
    status: str
    task: str
    queue: str
    args: str  # JSON text.
    kwargs: str  # JSON text.
    headers: str  # JSON text.
    priority: int
    attempt: int
    max_attempts: int
    run_after: datetime | None
    enqueued_at: datetime
    started_at: datetime | None  # Of the latest attempt.
    finished_at: datetime | None
    worker: str | None  # That holds its lease, or settled it.
    errors: str  # JSON text.
    result: str | None  # JSON text.
    reason: str | None


def read(cursor: Cursor, job_id: int) -> Row | None:
    """Return the job with this id; None when no table has it."""
    return record(Row, cursor, READ, id=job_id)


# Locks: none. MATERIALIZED: planned for all rows that have the tag, and read no
# further than the limit; planned together, the limit led to a walk along another index.
TAGGED = """
WITH tagged AS MATERIALIZED (
    SELECT id FROM {table} WHERE headers -> 'tags' @> %(tags)s::jsonb)
SELECT id FROM tagged LIMIT %(limit)s
"""
TAGGED_JOBS = TAGGED.format(table="pgqueue_job")
TAGGED_ARCHIVED = TAGGED.format(table="pgqueue_archived_job")
TAGGED_DEAD_LETTERS = TAGGED.format(table="pgqueue_dead_letter")
del TAGGED

STATEMENTS = {
    "pgqueue_job": TAGGED_JOBS,
    "pgqueue_archived_job": TAGGED_ARCHIVED,
    "pgqueue_dead_letter": TAGGED_DEAD_LETTERS,
}


def tagged(cursor: Cursor, *, table: str, tag: str, limit: int) -> list[int] | None:
    """
    Return the ids of all rows that have *tag*; None: there are more than *limit*.

    Args:
        cursor: An open cursor.
        table: pgqueue_job, pgqueue_archived_job or pgqueue_dead_letter.
        tag: The whole tag.
        limit: How many ids are read at most.
    """
    params = {"tags": json.dumps([tag]), "limit": limit + 1}
    cursor.execute(STATEMENTS[table], params)
    ids = [row_id for (row_id,) in cursor.fetchall()]
    return None if len(ids) > limit else ids
