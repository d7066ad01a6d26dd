"""
Purge: delete what its retention has outlived, in bounded batches.

Days of the archive are dropped whole (postgres/day_tables.py); this is the rest. Each
call deletes at most one batch and tells how many, so that the caller can pause, and
where it ended, so that the next one need not walk over what this one deleted: vacuum
may be far behind it, or held back for hours.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django_pgqueue.postgres.cursor import Cursor, one_row

PURGE_ROWS_MAX = 1_000

# Locks: none. Until the transaction ends. Statistics of what a table held before it was
# emptied and filled again let the planner read all of it for each row of a batch.
BY_INDEX = "SELECT set_config('enable_seqscan', 'off', true)"


def by_age(table: str, column: str) -> str:
    """
    Return a statement that deletes the oldest rows of a *table*, by its *column*.

    Locks: row locks on one batch; SKIP LOCKED passes over what is being redriven. The
    floor as a comparison of rows: it bounds the index scan like any other, but with a
    plain one the planner takes the two bounds for a narrow range and sorts all of it.
    """
    return f"""
WITH purged AS (
    DELETE FROM {table} WHERE id = ANY(ARRAY(
        SELECT id FROM {table}
         WHERE ({column}, id) >= (coalesce(%(floor)s::timestamptz, '-infinity'), 0)
           AND {column} < statement_timestamp() - %(keep)s::interval
         ORDER BY {column} LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
    RETURNING {column})
SELECT count(*), max({column}) FROM purged
"""


DEAD_LETTERS = by_age("pgqueue_dead_letter", "finished_at")
INBOX = by_age("pgqueue_inbox", "received_at")
SIGNALS = by_age("pgqueue_signal", "sent_at")
BULK_ACTS = by_age("pgqueue_bulk_act", "ended_at")

# Locks: row locks on one batch. The partial index holds only rows that have a result.
RESULTS = """
WITH purged AS (
    UPDATE pgqueue_archived_job SET result = NULL
     WHERE (id, finished_at) IN (
           SELECT id, finished_at FROM pgqueue_archived_job
            WHERE result IS NOT NULL
              AND (finished_at, id)
                  >= (coalesce(%(floor)s::timestamptz, '-infinity'), 0)
              AND finished_at < statement_timestamp() - %(keep)s::interval
            ORDER BY finished_at LIMIT %(limit)s)
    RETURNING finished_at)
SELECT count(*), max(finished_at) FROM purged
"""

# Locks: row locks on the deleted rows. Workers that were killed leave theirs behind.
WORKERS = """
WITH purged AS (
    DELETE FROM pgqueue_worker
     WHERE heartbeat_at < statement_timestamp() - %(keep)s::interval
    RETURNING heartbeat_at)
SELECT count(*), max(heartbeat_at) FROM purged
"""


# Locks: row locks on one batch; SKIP LOCKED passes over what is being counted in. Read
# again under its lock: a period that began anew meanwhile stays.
DEDUP_WINDOWS = """
WITH purged AS (
    DELETE FROM pgqueue_dedup_window WHERE until < statement_timestamp() AND key = ANY(
        ARRAY(SELECT key FROM pgqueue_dedup_window
               WHERE until >= coalesce(%(floor)s::timestamptz, '-infinity')
                 AND until < statement_timestamp() - %(keep)s::interval
               ORDER BY until LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
    RETURNING until)
SELECT count(*), max(until) FROM purged
"""

# Locks: row locks on a batch of workflows, and on their steps; SKIP LOCKED passes over
# what is just reopened. Steps count as rows, and what does not fit waits for the next
# batch: but the first workflow goes in any case, with all the steps that it has. What
# compensates is not over, though it has finished in one way. In the order of ids, which
# no index has that does not begin with the workflow.
WORKFLOWS = """
WITH over AS (
    SELECT id, finished_at, steps FROM pgqueue_workflow
     WHERE finished_at >= coalesce(%(floor)s::timestamptz, '-infinity')
       AND finished_at < statement_timestamp() - %(keep)s::interval
       AND state NOT IN ('running', 'compensating')
     ORDER BY finished_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED),
chosen AS (
    SELECT id FROM (
        SELECT id, coalesce(sum(steps + 1) OVER (
                   ORDER BY finished_at, id
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
          FROM over) counted
     WHERE before < %(limit)s),
steps AS (
    DELETE FROM pgqueue_step WHERE id = ANY(ARRAY(
        SELECT own.id FROM chosen CROSS JOIN LATERAL (
            SELECT s.id FROM pgqueue_step s WHERE s.workflow_id = chosen.id
             ORDER BY s.id + 0) own))
    RETURNING id),
purged AS (
    DELETE FROM pgqueue_workflow WHERE id = ANY(ARRAY(SELECT id FROM chosen))
    RETURNING finished_at)
SELECT (SELECT count(*) FROM steps) + count(*), max(finished_at) FROM purged
"""


class Purged(NamedTuple):
    """
    One batch.

    Attributes:
        rows: How many.
        floor: The latest finished_at (of periods, until) of them: nothing older is
            left, except what was locked or came since. None: there were none.
        looked: How many were looked at, where some of them stay.
    """

    rows: int
    floor: datetime | None
    looked: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether there may be more."""
        looked = self.rows if self.looked is None else self.looked
        return looked >= PURGE_ROWS_MAX


def batch(
    cursor: Cursor, statement: str, keep: timedelta, floor: datetime | None = None
) -> Purged:
    """
    Delete one batch of what is older than *keep*, along indexes, the oldest first.

    Args:
        cursor: psycopg's or Django's.
        statement: What is deleted, or dropped.
        keep: What is younger stays.
        floor: That of the batch before; what is older is not looked for. None: all.
    """
    params = {"keep": keep, "floor": floor, "limit": PURGE_ROWS_MAX}
    with cursor.connection.transaction():
        cursor.execute(BY_INDEX)
        cursor.execute(statement, params)
        return Purged(*one_row(cursor))
