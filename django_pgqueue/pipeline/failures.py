"""
Failures: what the pipeline job `failures` has found, by fingerprint and hour.

An hour's count never shrinks: errors go away with their jobs, by redrive, purge and
retention, and what has happened has happened. So a run can be repeated, and a run that
sees less than the one before it takes nothing away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.trusted_clock import TRUSTED_NOW

# Rows of one statement.
BATCH_ROWS = 1_000

COLUMNS = {
    "fingerprint": "text",
    "error_class": "text",
    "message": "text",
    "place": "text",
    "jobs": "bigint",
    "dead_letters": "bigint",
    "tasks": "jsonb",
    "first_seen": "timestamptz",
    "last_seen": "timestamptz",
    "sample_job_id": "bigint",
    "sample_message": "text",
    "sample_traceback": "text",
}
HOUR_COLUMNS = {"fingerprint": "text", "hour": "timestamptz", "count": "bigint"}


def _arrays(columns: dict[str, str]) -> str:
    return ", ".join(f"%({name})s::{kind}[]" for name, kind in columns.items())


# Locks: row locks on what is replaced, until the caller's transaction ends; here and
# below. The runs of a job are one at a time, so none of these waits for another.
STORE_HOURS = f"""
INSERT INTO pgqueue_failure_hour AS h (fingerprint, hour, count)
SELECT fingerprint, hour, count
  FROM unnest({_arrays(HOUR_COLUMNS)}) AS found(fingerprint, hour, count)
ON CONFLICT (fingerprint, hour) DO UPDATE SET count = EXCLUDED.count
 WHERE h.count < EXCLUDED.count
"""
STORE = f"""
INSERT INTO pgqueue_failure AS f ({", ".join(COLUMNS)}, computed_at)
SELECT {", ".join(COLUMNS)}, clock_timestamp()
  FROM unnest({_arrays(COLUMNS)}) AS found({", ".join(COLUMNS)})
ON CONFLICT (fingerprint) DO UPDATE
   SET jobs = greatest(f.jobs, EXCLUDED.jobs),
       dead_letters = EXCLUDED.dead_letters,
       tasks = EXCLUDED.tasks,
       first_seen = least(f.first_seen, EXCLUDED.first_seen),
       last_seen = greatest(f.last_seen, EXCLUDED.last_seen),
       sample_job_id = EXCLUDED.sample_job_id,
       sample_message = EXCLUDED.sample_message,
       sample_traceback = EXCLUDED.sample_traceback,
       computed_at = EXCLUDED.computed_at
"""
# The dead letters of a failure that no job shows any more have gone.
NONE_LEFT = """
UPDATE pgqueue_failure SET dead_letters = 0
 WHERE dead_letters > 0 AND NOT fingerprint = ANY(%(fingerprint)s::text[])
"""
FORGET_HOURS = f"""
DELETE FROM pgqueue_failure_hour WHERE hour < {TRUSTED_NOW} - %(keep)s::interval
"""
FORGET = f"""
DELETE FROM pgqueue_failure f
 WHERE last_seen < {TRUSTED_NOW} - %(keep)s::interval
   AND NOT EXISTS (SELECT 1 FROM pgqueue_failure_hour h
                    WHERE h.fingerprint = f.fingerprint)
"""
SUM_UP = """
UPDATE pgqueue_failure f SET count = summed.count
  FROM (SELECT fingerprint, sum(count)::bigint AS count
          FROM pgqueue_failure_hour GROUP BY fingerprint) AS summed
 WHERE f.fingerprint = summed.fingerprint AND f.count <> summed.count
"""


def store(
    cursor: Cursor,
    failures: Iterable[Sequence[Any]],
    hours: Iterable[Sequence[Any]],
    *,
    keep: timedelta,
) -> int:
    """
    Write what was found, and forget what is older than *keep*.

    Args:
        cursor: An open cursor; the caller commits all of it or nothing.
        failures: The values of COLUMNS, of each failure that was found.
        hours: The values of HOUR_COLUMNS.
        keep: How long hours are kept.

    Returns:
        How many failures and hours were given.
    """
    found, of_hours = list(failures), list(hours)
    _in_batches(cursor, STORE, COLUMNS, found)
    _in_batches(cursor, STORE_HOURS, HOUR_COLUMNS, of_hours)
    cursor.execute(NONE_LEFT, {"fingerprint": [row[0] for row in found]})
    cursor.execute(FORGET_HOURS, {"keep": keep})
    cursor.execute(FORGET, {"keep": keep})
    cursor.execute(SUM_UP)
    return len(found) + len(of_hours)


def _in_batches(
    cursor: Cursor, statement: str, columns: dict[str, str], rows: list[Sequence[Any]]
) -> None:
    for start in range(0, len(rows), BATCH_ROWS):
        values = zip(*rows[start : start + BATCH_ROWS], strict=True)
        cursor.execute(statement, dict(zip(columns, map(list, values), strict=True)))
