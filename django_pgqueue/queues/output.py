"""
Output: the values that tasks emit while they run, for those who wait for them.

A row for each. Its sequence is the delivery that has emitted it and its number there,
so that one that is written twice, since the first write got no answer, is there once;
and it grows from delivery to delivery: whoever has read up to one finds what is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from django_pgqueue.postgres.cursor import Cursor, rows

# Of one delivery: fewer than this. Sequences stay below 2^53, which JavaScript has.
NUMBERS = 1_000_000

# Rows of one look; whoever finds so many looks again at once.
READ_ROWS_MAX = 1_000


def _append(wait: str) -> str:
    return f"""
WITH held AS MATERIALIZED (
    SELECT j.id, j.deliveries, j.attempt FROM pgqueue_job j
      JOIN unnest(%(ids)s::bigint[], %(deliveries)s::int[]) AS mine(id, delivery)
        ON j.id = mine.id AND j.deliveries = mine.delivery
     WHERE j.id = ANY(%(ids)s::bigint[]) AND j.leased_by = %(worker)s
       FOR SHARE OF j{wait}),
added AS (
    INSERT INTO pgqueue_output (job_id, sequence, attempt, value)
    SELECT held.id, held.deliveries * {NUMBERS}::bigint + said.number, held.attempt,
           said.value::jsonb
      FROM unnest(%(of_ids)s::bigint[], %(of_deliveries)s::int[], %(numbers)s::int[],
                  %(values)s::text[]) AS said(job_id, delivery, number, value)
      JOIN held ON held.id = said.job_id AND held.deliveries = said.delivery
     ORDER BY said.job_id, said.number
        ON CONFLICT (job_id, sequence) DO NOTHING)
SELECT id, deliveries FROM held
"""


# Locks: the rows of the jobs, in FOR SHARE, for the statement: nobody claims or settles
# one between the look at its lease and the commit of its values. SKIP LOCKED: a row
# that somebody keeps locked holds up the values of no other job. One that is skipped is
# locked or lost: the caller asks again. (FOR KEY SHARE passes a row that is being
# updated, and then waits for whoever has locked its new version, SKIP LOCKED or not.)
APPEND = _append(" SKIP LOCKED")

# Locks: likewise, and it waits for whoever has the row. For one job, whose settle is
# next, and would wait for the same.
APPEND_LAST = _append("")

# Locks: none.
READ = """
SELECT o.sequence, o.attempt, o.value::text, o.emitted_at FROM pgqueue_output o
 WHERE o.job_id = %(job)s AND o.sequence > %(after)s
 ORDER BY o.sequence LIMIT %(limit)s
"""

# Locks: none. Values are cut by the database, for a page.
LATEST = """
SELECT o.sequence, o.attempt, left(o.value::text, %(characters)s), o.emitted_at
  FROM pgqueue_output o WHERE o.job_id = %(job)s
 ORDER BY o.sequence DESC LIMIT %(limit)s
"""

# Locks: row locks on one batch. What a job in the queue has emitted stays: somebody may
# come and read it from its beginning. Not EXISTS: that could become a join, which would
# read the whole queue. The floor as in queues/purge.py.
PURGE = """
WITH seen AS MATERIALIZED (
    SELECT o.job_id, o.sequence, o.emitted_at FROM pgqueue_output o
     WHERE (o.emitted_at, o.job_id)
           >= (coalesce(%(floor)s::timestamptz, '-infinity'), 0)
       AND o.emitted_at < statement_timestamp() - %(keep)s::interval
     ORDER BY o.emitted_at LIMIT %(limit)s),
purged AS (
    DELETE FROM pgqueue_output o USING seen
     WHERE o.job_id = seen.job_id AND o.sequence = seen.sequence
       AND (SELECT j.id FROM pgqueue_job j WHERE j.id = seen.job_id) IS NULL
    RETURNING 1)
SELECT (SELECT count(*) FROM purged), max(emitted_at), count(*) FROM seen
"""


class Said(NamedTuple):
    """A value on its way: of which job and delivery, its number there from 1 on."""

    job: int
    delivery: int
    number: int
    value: str  # JSON text.


class Row(NamedTuple):
    """A value as its row has it."""

    sequence: int
    attempt: int
    value: str  # JSON text.
    emitted_at: datetime

    @property
    def delivery(self) -> int:
        """Of its job."""
        return delivery_of(self.sequence)


def delivery_of(sequence: int) -> int:
    """Return which delivery has emitted what has this sequence."""
    return sequence // NUMBERS


def append(
    cursor: Cursor, said: Sequence[Said], *, worker: str, is_last: bool = False
) -> set[tuple[int, int]]:
    """
    Store values of running jobs.

    Args:
        cursor: The caller commits.
        said: The values; those that are there already stay.
        worker: Whose leases these are.
        is_last: They are of one job, whose row is waited for.

    Returns:
        (id, delivery) of the jobs whose values are stored. One that is missing is
        locked by somebody, or lost.
    """
    leases = list(dict.fromkeys((each.job, each.delivery) for each in said))
    params = {
        "ids": [job for job, _ in leases],
        "deliveries": [delivery for _, delivery in leases],
        "worker": worker,
        "of_ids": [each.job for each in said],
        "of_deliveries": [each.delivery for each in said],
        "numbers": [each.number for each in said],
        "values": [each.value for each in said],
    }
    cursor.execute(APPEND_LAST if is_last else APPEND, params)
    return {(job, delivery) for job, delivery in cursor.fetchall()}


def read(cursor: Cursor, job: int, *, after: int) -> list[Row]:
    """Return the next values of a job after a sequence, READ_ROWS_MAX at most."""
    params = {"job": job, "after": after, "limit": READ_ROWS_MAX}
    return rows(Row, cursor, READ, **params)


def latest(cursor: Cursor, job: int, *, limit: int, characters: int) -> list[Row]:
    """Return the latest values of a job, in their order, each cut to so many."""
    cursor.execute(LATEST, {"job": job, "limit": limit, "characters": characters})
    return [Row(*row) for row in reversed(cursor.fetchall())]
