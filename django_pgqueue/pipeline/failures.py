"""
Failures: what the pipeline job `failures` has found, by fingerprint and hour.

An hour's errors and jobs never shrink: they go away by redrive, purge and retention,
and what has happened has happened. So a run can be repeated, and a run that sees less
than the one before it takes nothing away. Its dead letters are those that there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django_pgqueue.postgres.cursor import Cursor

# Rows of one statement.
BATCH_ROWS = 1_000

COLUMNS = {
    "fingerprint": "text",
    "error_class": "text",
    "message": "text",
    "place": "text",
    "tasks": "jsonb",
    "first_seen": "timestamptz",
    "last_seen": "timestamptz",
    "sample_job_id": "bigint",
    "sample_message": "text",
    "sample_traceback": "text",
}
HOUR_COLUMNS = {
    "fingerprint": "text",
    "hour": "timestamptz",
    "count": "bigint",
    "jobs": "bigint",
    "dead_letters": "bigint",
}

# Names of tasks that a failure keeps.
TASKS_MAX = 20


def _arrays(columns: dict[str, str]) -> str:
    return ", ".join(f"%({name})s::{kind}[]" for name, kind in columns.items())


# Locks: row locks on what is replaced, until the caller's transaction ends; here and
# below. The runs of a job are one at a time, so none of these waits for another.
# Of hours whose dead letters were read: those that were there before.
NO_LETTERS = """
UPDATE pgqueue_failure_hour SET dead_letters = 0
 WHERE dead_letters > 0
   AND (hour >= %(since)s OR hour = ANY(%(hours)s::timestamptz[]))
"""
STORE_HOURS = f"""
INSERT INTO pgqueue_failure_hour AS h ({", ".join(HOUR_COLUMNS)})
SELECT {", ".join(HOUR_COLUMNS)}
  FROM unnest({_arrays(HOUR_COLUMNS)}) AS found({", ".join(HOUR_COLUMNS)})
ON CONFLICT (fingerprint, hour) DO UPDATE
   SET count = greatest(h.count, EXCLUDED.count),
       jobs = greatest(h.jobs, EXCLUDED.jobs), dead_letters = EXCLUDED.dead_letters
"""
# A run that looks at fewer hours may find a sample that is older than the one there.
STORE = f"""
INSERT INTO pgqueue_failure AS f ({", ".join(COLUMNS)}, computed_at)
SELECT {", ".join(COLUMNS)}, clock_timestamp()
  FROM unnest({_arrays(COLUMNS)}) AS found({", ".join(COLUMNS)})
ON CONFLICT (fingerprint) DO UPDATE
   SET tasks = (SELECT jsonb_agg(task ORDER BY task)
                  FROM (SELECT DISTINCT task COLLATE "C" AS task
                          FROM jsonb_array_elements_text(f.tasks || EXCLUDED.tasks)
                               AS seen(task)
                         ORDER BY task LIMIT {TASKS_MAX}) AS first_ones),
       first_seen = least(f.first_seen, EXCLUDED.first_seen),
       last_seen = greatest(f.last_seen, EXCLUDED.last_seen),
       (sample_job_id, sample_message, sample_traceback) = (
           SELECT EXCLUDED.sample_job_id, EXCLUDED.sample_message,
                  EXCLUDED.sample_traceback WHERE EXCLUDED.last_seen >= f.last_seen
            UNION ALL
           SELECT f.sample_job_id, f.sample_message, f.sample_traceback
            WHERE EXCLUDED.last_seen < f.last_seen),
       computed_at = EXCLUDED.computed_at
"""
# Locks: none. How many dead letters each hour had, of those before a time.
LETTERS = """
SELECT hour, sum(dead_letters)::bigint FROM pgqueue_failure_hour
 WHERE hour >= %(since)s AND hour < %(until)s AND dead_letters > 0 GROUP BY hour
"""
FORGET_HOURS = """
DELETE FROM pgqueue_failure_hour
 WHERE hour < statement_timestamp() - %(keep)s::interval
"""
FORGET = """
DELETE FROM pgqueue_failure f
 WHERE last_seen < statement_timestamp() - %(keep)s::interval
   AND NOT EXISTS (SELECT 1 FROM pgqueue_failure_hour h
                    WHERE h.fingerprint = f.fingerprint)
"""
SUM_UP = """
UPDATE pgqueue_failure f
   SET count = summed.count, jobs = greatest(f.jobs, summed.jobs),
       dead_letters = summed.dead_letters
  FROM (SELECT fingerprint, sum(count)::bigint AS count, sum(jobs)::bigint AS jobs,
               sum(dead_letters)::bigint AS dead_letters
          FROM pgqueue_failure_hour GROUP BY fingerprint) AS summed
 WHERE f.fingerprint = summed.fingerprint
   AND (f.count <> summed.count OR f.jobs < summed.jobs
        OR f.dead_letters <> summed.dead_letters)
"""


def letters(cursor: Cursor, since: datetime, until: datetime) -> dict[datetime, int]:
    """Return how many dead letters the hours between two times had at the last run."""
    cursor.execute(LETTERS, {"since": since, "until": until})
    return dict(cursor.fetchall())


def store(
    cursor: Cursor,
    failures: Iterable[Sequence[Any]],
    hours: Iterable[Sequence[Any]],
    *,
    since: datetime,
    letters_of: Iterable[datetime] = (),
    keep: timedelta,
) -> int:
    """
    Write what was found, and forget what is older than *keep*.

    Args:
        cursor: An open cursor; the caller commits all of it or nothing.
        failures: The values of COLUMNS, of each failure that was found.
        hours: The values of HOUR_COLUMNS.
        since: The first hour of which all errors and dead letters were read.
        letters_of: Hours before, of which all dead letters were read.
        keep: How long hours are kept.

    Returns:
        How many failures and hours were given.
    """
    found, of_hours = list(failures), list(hours)
    cursor.execute(NO_LETTERS, {"since": since, "hours": list(letters_of)})
    _in_batches(cursor, STORE, COLUMNS, found)
    _in_batches(cursor, STORE_HOURS, HOUR_COLUMNS, of_hours)
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
