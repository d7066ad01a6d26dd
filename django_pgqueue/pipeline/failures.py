"""
Failures: what the pipeline job `failures` has found, by fingerprint and hour.

An hour's errors and jobs never shrink: they go away by redrive, purge and retention,
and what has happened has happened. So a run can be repeated, and a run that sees less
than the one before it takes nothing away. Its dead letters are those that there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_pgqueue.pipeline.task_hours import store_rows
from django_pgqueue.postgres.cursor import Cursor, rows, value

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
    store_rows(cursor, STORE, COLUMNS, found)
    store_rows(cursor, STORE_HOURS, HOUR_COLUMNS, of_hours)
    cursor.execute(FORGET_HOURS, {"keep": keep})
    cursor.execute(FORGET, {"keep": keep})
    cursor.execute(SUM_UP)
    return len(found) + len(of_hours)


# Hours of failures that one look reads, the latest.
ROWS_MAX = 100_000

# Locks: none. One walk along the index of hours, the latest first; then the failures
# that it met, by their keys.
RECENT = """
WITH looked_at AS MATERIALIZED (
    SELECT h.fingerprint, h.count FROM pgqueue_failure_hour h
     WHERE h.hour >= %(since)s ORDER BY h.hour DESC LIMIT %(rows)s)
SELECT f.fingerprint, f.error_class, f.message, f.place, f.tasks::text, recent.errors,
       f.jobs, f.dead_letters, f.first_seen, f.last_seen,
       (SELECT count(*) FROM looked_at)
  FROM (SELECT l.fingerprint, sum(l.count)::bigint AS errors
          FROM looked_at l GROUP BY l.fingerprint) recent
  JOIN pgqueue_failure f ON f.fingerprint = recent.fingerprint
 WHERE (%(text)s::text = '' OR strpos(lower(f.error_class), lower(%(text)s)) > 0
        OR strpos(lower(f.place), lower(%(text)s)) > 0
        OR %(in_messages)s AND strpos(lower(f.message), lower(%(text)s)) > 0)
   AND (%(task)s::text = '' OR f.tasks @> to_jsonb(%(task)s::text))
 ORDER BY recent.errors DESC, f.last_seen DESC, f.fingerprint LIMIT %(limit)s
"""

# Locks: none.
CLOCK = "SELECT extract(epoch FROM clock_timestamp())::bigint"

# Locks: none. A range of the unique index for each fingerprint.
TREND = """
SELECT fingerprint,
       floor(extract(epoch FROM hour) / %(step)s)::bigint * %(step)s AS span,
       sum(count)::bigint
  FROM pgqueue_failure_hour
 WHERE fingerprint = ANY(%(fingerprints)s::text[]) AND hour >= %(since)s
 GROUP BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A failure, and how many of its errors happened of late."""

    fingerprint: str
    error_class: str
    message: str
    place: str
    tasks: str  # JSON.
    recent: int
    jobs: int
    dead_letters: int
    first_seen: datetime
    last_seen: datetime
    # Rows that were read to find it and all others.
    read: int


def clock(cursor: Cursor) -> int:
    """Return the server's time, in seconds since 1970."""
    return int(value(cursor, CLOCK))


def recent(
    cursor: Cursor,
    *,
    since: datetime,
    limit: int,
    text: str = "",
    in_messages: bool = False,
    task: str = "",
) -> list[Kind]:
    """
    Return the failures with the most errors from *since* on.

    Args:
        cursor: An open cursor.
        since: The first hour.
        limit: How many.
        text: Those alone that have it in their class or place, whatever the case.
        in_messages: Or in their message.
        task: Those alone that happened to this task.
    """
    return rows(
        Kind,
        cursor,
        RECENT,
        since=since,
        rows=ROWS_MAX,
        text=text,
        in_messages=in_messages,
        task=task,
        limit=limit,
    )


def trends(
    cursor: Cursor, fingerprints: Sequence[str], *, since: datetime, step_seconds: int
) -> dict[str, dict[int, int]]:
    """
    Return how many errors happened, by fingerprint and span.

    Args:
        cursor: An open cursor.
        fingerprints: Of whom.
        since: The first hour.
        step_seconds: Of a span; whole hours. Spans are named by their first second
            since 1970.
    """
    cursor.execute(
        TREND,
        {"fingerprints": list(fingerprints), "since": since, "step": step_seconds},
    )
    found: dict[str, dict[int, int]] = {name: {} for name in fingerprints}
    for name, span, count in cursor.fetchall():
        found[name][span] = count
    return found
