"""
Durable: what a task has done within one job, so that its next attempt does not repeat.

A row per call of the task's context, by its place in the order of calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple

from django_pgqueue.postgres.cursor import Cursor, rows
from django_pgqueue.queues.dead_letters import Moved

# Set on a job that was signalled while it ran: its snooze ends at once.
SIGNALLED = "pgqueue.signalled"

# Locks: none.
READ = """
SELECT d.place, d.name, d.kind, d.key, d.done_at IS NOT NULL, d.result::text,
       extract(epoch FROM d.until - clock_timestamp())::float8
  FROM pgqueue_durable_step d WHERE d.job_id = %(job)s ORDER BY d.place
"""

# Locks: its entry in the primary key: this waits for another delivery of the job that
# stores the same place, and finds it taken then.
STORE = """
INSERT INTO pgqueue_durable_step (
    job_id, place, name, kind, result, key, until, done_at)
VALUES (%(job)s, %(place)s, %(name)s, %(kind)s::text, %(result)s::jsonb, %(key)s,
        clock_timestamp() + %(lasts)s::interval,
        CASE WHEN %(kind)s::text = 'step' THEN clock_timestamp() END)
ON CONFLICT (job_id, place) DO NOTHING
RETURNING extract(epoch FROM until - clock_timestamp())::float8
"""

# Locks: the row, for the statement.
DONE = """
UPDATE pgqueue_durable_step SET done_at = clock_timestamp(), result = %(result)s::jsonb
 WHERE job_id = %(job)s AND place = %(place)s AND done_at IS NULL
"""

# Locks: none. The first signal that was sent since the job was enqueued, and that no
# earlier wait of it has taken. One with a lower id than these may be seen only now: its
# transaction took longer.
FIND_SIGNAL = """
SELECT s.id, s.payload::text FROM pgqueue_signal s
 WHERE s.name = %(name)s AND s.key = %(key)s
   AND s.id <> ALL(%(taken)s::bigint[])
   AND s.sent_at >= (SELECT j.enqueued_at FROM pgqueue_job j WHERE j.id = %(job)s)
 ORDER BY s.id LIMIT 1
"""

# Locks: none.
SEND = """
INSERT INTO pgqueue_signal (name, key, payload)
VALUES (%(name)s, %(key)s, %(payload)s::jsonb)
"""

# Locks: the rows of the jobs that wait, in the order of their ids, for the statement.
# It waits for a settle of one that is under way: so a job either waits already, and is
# due now, or is about to, and its settle finds that it was signalled.
WAKE = f"""
WITH waiting AS MATERIALIZED (
    SELECT j.id FROM pgqueue_job j
     WHERE j.id = ANY(ARRAY(
           SELECT d.job_id FROM pgqueue_durable_step d
            WHERE d.name = %(name)s AND d.key = %(key)s AND d.kind = 'wait'
              AND d.done_at IS NULL))
     ORDER BY j.id FOR UPDATE)
UPDATE pgqueue_job j
   SET headers = CASE WHEN j.leased_by IS NULL THEN j.headers
                      ELSE j.headers || '{{"{SIGNALLED}": true}}' END,
       visible_at = CASE WHEN j.leased_by IS NULL AND j.visible_at IS NOT NULL
                         THEN least(j.visible_at, statement_timestamp())
                         ELSE j.visible_at END,
       lane_due_at = CASE WHEN j.visible_at IS NULL
                          THEN least(j.lane_due_at, statement_timestamp())
                          ELSE j.lane_due_at END
  FROM waiting WHERE j.id = waiting.id
RETURNING j.id, j.queue, CASE WHEN j.visible_at IS NULL THEN j.lane END, j.lane_policy
"""

# Locks: row locks on one batch. Of jobs that are in a queue or among the dead letters
# they stay.
PURGE_STEPS = """
WITH seen AS MATERIALIZED (
    SELECT d.job_id, d.place, d.created_at FROM pgqueue_durable_step d
     WHERE (d.created_at, d.job_id)
           >= (coalesce(%(floor)s::timestamptz, '-infinity'), 0)
       AND d.created_at < statement_timestamp() - %(keep)s::interval
     ORDER BY d.created_at LIMIT %(limit)s),
purged AS (
    DELETE FROM pgqueue_durable_step d USING seen
     WHERE d.job_id = seen.job_id AND d.place = seen.place
       AND NOT EXISTS (SELECT FROM pgqueue_job j WHERE j.id = seen.job_id)
       AND NOT EXISTS (SELECT FROM pgqueue_dead_letter l WHERE l.id = seen.job_id)
    RETURNING 1)
SELECT (SELECT count(*) FROM purged), max(created_at), count(*) FROM seen
"""


class Done(NamedTuple):
    """A call as its row has it."""

    place: int
    name: str
    kind: str
    key: str  # Of a wait; else "".
    is_done: bool
    result: str | None  # JSON text.
    seconds: float | None  # Until it is over; below 0: it is. None: without end.


def read(cursor: Cursor, job: int) -> Iterator[Done]:
    """Yield the calls of a job, in their order."""
    cursor.execute(READ, {"job": job})
    return (Done(*row) for row in cursor.fetchall())


def store(
    cursor: Cursor,
    job: int,
    place: int,
    name: str,
    kind: str,
    *,
    result: str | None = None,
    key: str = "",
    lasts: timedelta | None = None,
) -> tuple[bool, float | None]:
    """
    Store a call; return whether the place was free, and how long it lasts.

    Args:
        cursor: The caller commits.
        job: Its id.
        place: Of the call, from 0 on.
        name: Of the step, or of the signal that it waits for.
        kind: "step", which is done, "sleep" or "wait".
        result: JSON text.
        key: Of the signal.
        lasts: None: without end.
    """
    params = {
        "job": job,
        "place": place,
        "name": name,
        "kind": kind,
        "result": result,
        "key": key,
        "lasts": lasts,
    }
    cursor.execute(STORE, params)
    found = cursor.fetchone()
    return (False, None) if found is None else (True, found[0])


def done(cursor: Cursor, job: int, place: int, result: str | None = None) -> None:
    """Note that a sleep or a wait is over, and with what."""
    cursor.execute(DONE, {"job": job, "place": place, "result": result})


def find_signal(
    cursor: Cursor, job: int, name: str, key: str, *, taken: Sequence[int] = ()
) -> tuple[int, str | None] | None:
    """
    Return the first signal for a job, and its payload as JSON text; None: none is.

    Args:
        cursor: An open cursor.
        job: Its id; what was sent before it was enqueued is not for it.
        name: Of the signal.
        key: Of the signal.
        taken: The ids of those that it has taken before.
    """
    params = {"job": job, "name": name, "key": key, "taken": list(taken)}
    cursor.execute(FIND_SIGNAL, params)
    found = cursor.fetchone()
    return None if found is None else (found[0], found[1])


def send(cursor: Cursor, name: str, key: str, payload: str) -> None:
    """Store a signal, whose payload is JSON text."""
    cursor.execute(SEND, {"name": name, "key": key, "payload": payload})


def wake(cursor: Cursor, name: str, key: str) -> list[Moved]:
    """Make jobs due that wait for a signal; return these. After its commit."""
    return rows(Moved, cursor, WAKE, name=name, key=key)
