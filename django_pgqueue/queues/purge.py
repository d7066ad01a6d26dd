"""
Purge: delete what its retention has outlived, in bounded batches.

Days of the archive are dropped whole (queues/partitions.py); this is the rest. Each
call deletes at most one batch and tells how many, so that the caller can pause.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

PURGE_ROWS_MAX = 1_000

# Locks: row locks on one batch; SKIP LOCKED passes over what is being redriven.
DEAD_LETTERS = """
DELETE FROM pgqueue_dead_letter WHERE id = ANY(ARRAY(
    SELECT id FROM pgqueue_dead_letter
     WHERE finished_at < statement_timestamp() - %(keep)s::interval
     ORDER BY finished_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
"""

# Locks: row locks on one batch. The partial index holds only rows that have a result.
RESULTS = """
UPDATE pgqueue_archived_job SET result = NULL
 WHERE (id, finished_at) IN (
       SELECT id, finished_at FROM pgqueue_archived_job
        WHERE result IS NOT NULL
          AND finished_at < statement_timestamp() - %(keep)s::interval
        ORDER BY finished_at LIMIT %(limit)s)
"""

# Locks: row locks on the deleted rows. Workers that were killed leave theirs behind.
WORKERS = """
DELETE FROM pgqueue_worker
 WHERE heartbeat_at < statement_timestamp() - %(keep)s::interval
"""


def purge_dead_letters(cursor: Any, *, keep: timedelta) -> int:
    """Delete one batch of dead letters older than *keep*; return how many."""
    cursor.execute(DEAD_LETTERS, {"keep": keep, "limit": PURGE_ROWS_MAX})
    return int(cursor.rowcount)


def purge_results(cursor: Any, *, keep: timedelta) -> int:
    """Drop one batch of results older than *keep*; the archived rows stay."""
    cursor.execute(RESULTS, {"keep": keep, "limit": PURGE_ROWS_MAX})
    return int(cursor.rowcount)


def purge_workers(cursor: Any, *, keep: timedelta) -> int:
    """Delete the rows of workers not heard of for *keep*; return how many."""
    cursor.execute(WORKERS, {"keep": keep})
    return int(cursor.rowcount)
