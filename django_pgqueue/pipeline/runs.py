"""
Pipelines: the runs of pipeline jobs, one live at a time for each job, or place of it.

A run is its process's as long as its row says "running". The process moves lease_until
on, by the database's clock; past that, the next run that needs its place marks it as
lost and takes that. Which places a run needs, the job says; one without any needs the
whole job. Whoever writes results locks the row first (HOLD), so that a process
that was away for longer than its lease writes nothing any more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_pgqueue.postgres.cursor import Cursor, column, first, has_row, value
from django_pgqueue.postgres.keys import PIPELINE_RUNS

# The database is asked so often whether the run was told to stop, and a process that
# died is noticed after so long: it may be away for fourteen beats.
BEAT_SECONDS = 2.0
LEASE_SECONDS = 30.0

# Finished runs of a job that are kept.
RUNS_KEPT_MAX = 1_000

# Locks: the job's advisory lock, until the caller's transaction ends: of two starters
# the second finds the first one's run. A statement of its own: what follows it sees
# what was committed by whoever had the lock before.
ALONE = f"""
SELECT pg_advisory_xact_lock({PIPELINE_RUNS},
           mod(hashtextextended(%(job)s, 'pgqueue_job'::regclass::oid::bigint),
               2147483647)::integer)
"""

# Runs that need one place at least that the new one needs, too.
SHARES = """
job = %(job)s::text AND state = 'running'
   AND (places && %(places)s::text[] OR '{}' IN (places, %(places)s::text[]))
"""

# Runs whose process has died, and which others.
LOSE_LATE = """
UPDATE pgqueue_pipeline_run
   SET state = 'lost', finished_at = lease_until,
       error = coalesce(error, 'Its process ended without a word.')
 WHERE state = 'running' AND lease_until < clock_timestamp()
"""
# Locks: a row lock on each run that is lost; a run that writes is waited for.
LOSE = f"{LOSE_LATE} AND {SHARES}"
# Locks: none that anybody waits for.
START = f"""
INSERT INTO pgqueue_pipeline_run (job, places, options, asked_by, queue_job_id,
                                  hostname, pid, started_at, lease_until)
SELECT %(job)s::text, %(places)s::text[], %(options)s::jsonb,
       nullif(%(by)s::text, ''), %(queue_job)s::bigint,
       %(hostname)s, %(pid)s::integer, clock_timestamp(),
       clock_timestamp() + make_interval(secs => %(lease_seconds)s)
 WHERE NOT EXISTS (SELECT FROM pgqueue_pipeline_run WHERE {SHARES})
RETURNING id, started_at
"""
# Locks: row locks on the deleted rows.
FORGET_OLD = """
DELETE FROM pgqueue_pipeline_run
 WHERE job = %(job)s AND state <> 'running'
   AND id <= (SELECT id FROM pgqueue_pipeline_run
               WHERE job = %(job)s ORDER BY id DESC OFFSET %(kept)s LIMIT 1)
"""

LIVE = f"""
SELECT id, hostname, pid,
       (SELECT min(place) FROM unnest(places) place
         WHERE place = ANY(%(places)s::text[]))
  FROM pgqueue_pipeline_run WHERE {SHARES} ORDER BY id LIMIT 1
"""

# Locks: a row lock on the run, for the statement.
BEAT = """
UPDATE pgqueue_pipeline_run
   SET lease_until = clock_timestamp() + make_interval(secs => %(lease_seconds)s),
       rows_in = %(rows_in)s, rows_out = %(rows_out)s,
       progress = %(progress)s::jsonb,
       ui_url = coalesce(%(ui_url)s, ui_url)
 WHERE id = %(run)s AND state = 'running'
RETURNING cancel_requested_at IS NOT NULL
"""

# Locks: a row lock on the run until the caller's transaction ends: nobody can mark it
# as lost before what it has written is committed. Its own beat waits meanwhile, so the
# lease is moved on here: who waits to take the place finds it fresh.
HOLD = """
UPDATE pgqueue_pipeline_run
   SET lease_until = greatest(lease_until, clock_timestamp()
                                  + make_interval(secs => %(lease_seconds)s))
 WHERE id = %(run)s AND state = 'running'
   AND (cancel_requested_at IS NULL OR %(is_whole)s)
RETURNING id
"""

# Locks: a row lock on the run.
FINISH = """
UPDATE pgqueue_pipeline_run
   SET state = %(state)s, finished_at = clock_timestamp(), rows_in = %(rows_in)s,
       rows_out = %(rows_out)s, error = %(error)s, progress = %(progress)s::jsonb,
       ui_url = coalesce(%(ui_url)s, ui_url)
 WHERE id = %(run)s AND state = 'running'
RETURNING id
"""

# Locks: a row lock on the run.
LOSE_ONE = """
UPDATE pgqueue_pipeline_run
   SET state = 'lost', finished_at = clock_timestamp(), error = %(error)s
 WHERE id = %(run)s AND state = 'running'
"""

# Locks: a row lock on the run. The first who asks is the one who is named.
STOP = """
UPDATE pgqueue_pipeline_run
   SET cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),
       cancel_requested_by = CASE WHEN cancel_requested_at IS NULL
                                  THEN nullif(%(by)s::text, '')
                                  ELSE cancel_requested_by END
 WHERE job = %(job)s AND state = 'running'
   AND (%(run)s::bigint IS NULL OR id = %(run)s)
RETURNING id, lease_until < clock_timestamp()
"""

# Each job's latest runs, newest first: a look at the index for each.
LATEST = """
WITH RECURSIVE jobs AS (
    (SELECT job FROM pgqueue_pipeline_run ORDER BY job LIMIT 1)
    UNION ALL
    SELECT (SELECT r.job FROM pgqueue_pipeline_run r WHERE r.job > jobs.job
             ORDER BY r.job LIMIT 1)
      FROM jobs WHERE jobs.job IS NOT NULL)
SELECT r.id, r.job, CASE WHEN r.state = 'running' AND r.lease_until < clock_timestamp()
                         THEN 'lost' ELSE r.state END AS state,
       r.options, r.asked_by, r.queue_job_id, r.hostname, r.pid, r.started_at,
       r.finished_at,
       extract(epoch FROM coalesce(r.finished_at,
           least(clock_timestamp(), r.lease_until)) - r.started_at)::float8 AS seconds,
       r.rows_in, r.rows_out, r.progress, r.error, r.ui_url, r.cancel_requested_at,
       r.cancel_requested_by
  FROM jobs, LATERAL (SELECT * FROM pgqueue_pipeline_run r WHERE r.job = jobs.job
                       ORDER BY r.id DESC LIMIT %(limit)s) AS r
 WHERE %(job)s::text IS NULL OR jobs.job = %(job)s
 ORDER BY jobs.job, r.id DESC
"""

# Locks: none. "lost" where its process has died.
STATE = """
SELECT CASE WHEN state = 'running' AND lease_until < clock_timestamp() THEN 'lost'
            ELSE state END
  FROM pgqueue_pipeline_run WHERE id = %(run)s
"""

# Locks: none. By a version that knew the option.
LATEST_SUCCESS = """
SELECT max(started_at) FROM pgqueue_pipeline_run
 WHERE job = %(job)s AND state = 'succeeded' AND jsonb_exists(options, %(name)s)
"""

# Locks: none. Runs of a job, or of any, whose lease is not over.
LIVE_RUNS = """
SELECT id FROM pgqueue_pipeline_run
 WHERE state = 'running' AND lease_until >= clock_timestamp()
   AND (%(job)s::text IS NULL OR job = %(job)s)
 ORDER BY id
"""

# What the process of a host has reached with a job, in its latest run. Locks: none.
OF_PROCESS = """
SELECT id, state, rows_in, rows_out, progress, error,
       cancel_requested_at IS NOT NULL AS was_asked_to_stop,
       state = 'running' AND lease_until < clock_timestamp() AS is_late
  FROM pgqueue_pipeline_run
 WHERE job = %(job)s AND hostname = %(hostname)s AND pid = %(pid)s AND id > %(after)s
   AND (%(queue_job)s::bigint IS NULL OR queue_job_id = %(queue_job)s)
 ORDER BY id DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Started:
    """A run that is this process's now, and when it began by the database's clock."""

    id: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Live:
    """The run that stands in the way."""

    id: int
    hostname: str
    pid: int
    # One that both need; None: one of them needs the whole job.
    place: str | None


def start(
    cursor: Cursor,
    job: str,
    *,
    options: Mapping[str, Any],
    places: Sequence[str] = (),
    lease_seconds: float = LEASE_SECONDS,
    **of_process: Any,
) -> Started | Live:
    """
    Begin a run of *job*, unless one is alive; a run whose process died is lost.

    Args:
        cursor: In a transaction, which is committed whatever is returned.
        job: The name of the pipeline job.
        options: Those of the job; JSON values without secrets.
        places: What it needs for itself; (): the whole job.
        lease_seconds: Until it counts as dead, unless it beats.
        of_process: `by`, who asks, at most 150 characters ("": nobody is named);
            `queue_job`, the queue's job that runs it, or None; `hostname` and `pid`.
    """
    needed = {"job": job, "places": list(places)}
    cursor.execute(ALONE, needed)
    cursor.execute(LOSE, needed)
    told = {"options": json.dumps(dict(options)), "lease_seconds": lease_seconds}
    while True:
        cursor.execute(START, {**needed, **told, **of_process})
        row = cursor.fetchone()
        if row is not None:
            cursor.execute(FORGET_OLD, {"job": job, "kept": RUNS_KEPT_MAX})
            return Started(*row)
        cursor.execute(LIVE, needed)
        row = cursor.fetchone()
        if row is not None:
            return Live(*row)
        # It ended between the two statements.


def beat(
    cursor: Cursor,
    run: int,
    *,
    lease_seconds: float = LEASE_SECONDS,
    progress: Mapping[str, Any],
    **reached: Any,
) -> bool | None:
    """
    Say that *run* is alive; True: it is to stop; None: it is not ours any more.

    It has *reached* `rows_in`, `rows_out` and `ui_url`, and *progress* besides.
    """
    values = {**reached, "progress": json.dumps(progress), "run": run}
    cursor.execute(BEAT, {**values, "lease_seconds": lease_seconds})
    row = cursor.fetchone()
    return None if row is None else bool(row[0])


def hold(
    cursor: Cursor,
    run: int,
    *,
    is_whole: bool = False,
    lease_seconds: float = LEASE_SECONDS,
) -> bool:
    """
    Keep *run* ours until the transaction ends; False: it is not, or is to stop.

    Args:
        cursor: In a transaction.
        run: The run's id.
        is_whole: What it does is done as a whole, also if it was told to stop.
        lease_seconds: As for start().
    """
    values = {"run": run, "is_whole": is_whole, "lease_seconds": lease_seconds}
    return has_row(cursor, HOLD, **values)


def finish(
    cursor: Cursor, run: int, *, progress: Mapping[str, Any], **reached: Any
) -> bool:
    """
    End *run*; False: it was not ours any more, and its row stays as it is.

    It has *reached* what beat() is given, a `state` and an `error`, or None.
    """
    values = {**reached, "progress": json.dumps(progress), "run": run}
    return has_row(cursor, FINISH, **values)


def lose(cursor: Cursor, run: int, error: str) -> None:
    """Say that the process of *run* is dead, and why, if the run has not ended."""
    cursor.execute(LOSE_ONE, {"run": run, "error": error})


def request_stop(
    cursor: Cursor, job: str, *, by: str, run: int | None = None
) -> tuple[int, bool] | None:
    """
    Ask the live run of *job* to stop.

    Args:
        cursor: An open cursor.
        job: The name of the pipeline job.
        by: Who asks; "": nobody is named.
        run: This run alone, and not one that has begun since; None: whichever is live.

    Returns:
        Its id, and whether its process has died; None: no run is live.
    """
    cursor.execute(STOP, {"job": job, "by": by, "run": run})
    row = cursor.fetchone()
    return None if row is None else (int(row[0]), bool(row[1]))


def latest(cursor: Cursor, *, job: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the latest *limit* runs of each job, or of *job*: newest first."""
    cursor.execute(LATEST, {"job": job, "limit": limit})
    return [_by_name(cursor, row) for row in cursor.fetchall()]


def state_of(cursor: Cursor, run: int) -> str | None:
    """Return the state of *run*; None: there is no such row."""
    state: str | None = first(cursor, STATE, run=run)
    return state


def latest_success(cursor: Cursor, job: str, option: str) -> datetime | None:
    """
    Return when the latest run of *job* began that succeeded; None: there is none.

    Args:
        cursor: An open cursor.
        job: The name of the pipeline job.
        option: Of the job; runs of versions without it are left out.
    """
    moment: datetime | None = value(cursor, LATEST_SUCCESS, job=job, name=option)
    return moment


def live_runs(cursor: Cursor, job: str | None = None) -> list[int]:
    """Return the runs of *job*, or of all, whose lease is not over; oldest first."""
    return column(cursor, LIVE_RUNS, job=job)


def of_process(
    cursor: Cursor,
    job: str,
    *,
    hostname: str,
    pid: int,
    after: int = 0,
    queue_job: int | None = None,
) -> dict[str, Any] | None:
    """
    Return what a process has reached in its latest run after *after*, or None.

    The run is one of *queue_job*; None: of any, or of none.
    """
    values = {"job": job, "hostname": hostname, "pid": pid, "after": after}
    cursor.execute(OF_PROCESS, {**values, "queue_job": queue_job})
    row = cursor.fetchone()
    return None if row is None else _by_name(cursor, row)


def _by_name(cursor: Cursor, row: Sequence[Any]) -> dict[str, Any]:
    names = [column[0] for column in cursor.description]
    found = dict(zip(names, row, strict=True))
    for name in ("options", "progress"):
        # Django's cursors leave JSON as text.
        if isinstance(found.get(name), str):
            found[name] = json.loads(found[name])
    return found
