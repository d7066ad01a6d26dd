"""
Ticks: each due moment of a schedule, once.

A tick is issued in one transaction: the schedule's row moves on, the tick is inserted,
its job is enqueued. The unique key (schedule, due time) is the truth: any number of
schedulers may try. That last_tick only moves forward keeps it so when ticks are purged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django_pgqueue.live_states import live_state
from django_pgqueue.postgres.cursor import Cursor, has_row, record, rows, value
from django_pgqueue.schedules import store
from django_pgqueue.schedules.store import ScheduleRow, read_rows

# Schedules looked at in one round; more follow at once.
DUE_ROWS_MAX = 100

# How long the job of a tick may wait for somebody's lock; the other schedules wait too.
LOCK_PATIENCE = "2s"

# Ticks of a schedule that are kept, whatever their age: its last runs.
TICKS_KEPT = 20

# Locks: none. What is due, or has no next tick that was reckoned yet, by the index
# pgqueue_schedule_next.
DUE = f"""
{store.SHOWN}
 WHERE paused_at IS NULL AND withdrawn_at IS NULL
   AND (next_tick <= clock_timestamp() OR (next_tick IS NULL AND error IS NULL))
   AND id <> ALL(%(but)s::bigint[])
 ORDER BY next_tick NULLS FIRST LIMIT %(limit)s
"""
# Locks: none. Those that cannot have a tick, and those that have the next ones, by the
# same index.
COMING = f"""
SELECT * FROM ({store.SHOWN}
        WHERE paused_at IS NULL AND withdrawn_at IS NULL
          AND next_tick IS NULL AND error IS NOT NULL LIMIT %(limit)s) without
UNION ALL
SELECT * FROM ({store.SHOWN}
        WHERE paused_at IS NULL AND withdrawn_at IS NULL AND next_tick IS NOT NULL
        ORDER BY next_tick LIMIT %(limit)s) coming
"""
# Locks: none. When DUE has something to show, in seconds from now.
NEXT = """
SELECT min(CASE WHEN next_tick IS NULL THEN 0
                ELSE extract(epoch FROM next_tick - clock_timestamp()) END)::float8
  FROM pgqueue_schedule
 WHERE paused_at IS NULL AND withdrawn_at IS NULL
   AND (next_tick IS NOT NULL OR error IS NULL) AND id <> ALL(%(but)s::bigint[])
"""
# Locks: none. Whether a tick has not been issued for so long: whoever leads is away.
# One that cannot be issued says nothing about that.
OVERDUE = """
SELECT EXISTS (SELECT 1 FROM pgqueue_schedule
                WHERE paused_at IS NULL AND withdrawn_at IS NULL AND error IS NULL
                  AND coalesce(next_tick, ticks_from)
                      < clock_timestamp() - %(late)s::interval)
"""

# Locks: a row lock on the schedule until the caller's transaction ends, and none where
# somebody has it: another scheduler, who issues the tick, or a transaction that changes
# the schedule and may stay open for hours; the other schedules must not wait for that.
# An edit, a pause or another one's tick in between makes it find nothing. The server
# says whether the tick is due: a scheduler with another clock cannot be early.
# What follows in the transaction waits so long for others, and then fails: for one that
# has stored a job with the dedup key of this one's, and has not committed.
ADVANCE = """
UPDATE pgqueue_schedule
   SET last_tick = %(latest)s, next_tick = %(next)s, error = NULL
 WHERE id = (SELECT id FROM pgqueue_schedule
              WHERE id = %(id)s AND revision = %(revision)s
                AND last_tick IS NOT DISTINCT FROM %(seen)s::timestamptz
                AND (last_tick IS NULL OR last_tick < %(latest)s)
                AND paused_at IS NULL AND withdrawn_at IS NULL
                AND %(latest)s <= clock_timestamp()
                FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id, set_config('lock_timeout', %(patience)s, true)
"""

# Locks: a row lock on the schedule, for the statement; none where somebody has it. The
# reckoned next tick, or why it cannot be issued, of a row that is still as it was read.
RECKON = """
UPDATE pgqueue_schedule SET next_tick = %(next)s, error = %(error)s
 WHERE id = (SELECT id FROM pgqueue_schedule
              WHERE id = %(id)s AND revision = %(revision)s
                AND last_tick IS NOT DISTINCT FROM %(seen)s::timestamptz
                FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id
"""

# Locks: a row lock on the new row; a second tick of the same moment waits for it.
INSERT = """
INSERT INTO pgqueue_tick (schedule_id, due_at, outcome, missed, asked_by)
VALUES (%(schedule)s, coalesce(%(due_at)s::timestamptz, clock_timestamp()), %(outcome)s,
        %(missed)s, nullif(%(by)s::text, ''))
ON CONFLICT (schedule_id, due_at) DO NOTHING
RETURNING id
"""

# Locks: none. Whether a job of the schedule is live: waiting, running or in back-off.
BUSY = "SELECT EXISTS (SELECT 1 FROM pgqueue_job WHERE schedule_id = %(schedule)s)"

# Locks: a row lock on the tick, which is the caller's own.
NOTE_JOB = """
UPDATE pgqueue_tick SET job_id = %(job)s, outcome = %(outcome)s WHERE id = %(tick)s
"""

# Locks: as NOTE_JOB.
NOTE_MESSAGE = """
UPDATE pgqueue_tick SET message_id = %(message)s, outcome = 'published'
 WHERE id = %(tick)s
"""

# Locks: a row lock on the job, which the caller has stored in this transaction.
OWN_JOB = "UPDATE pgqueue_job SET schedule_id = %(schedule)s WHERE id = %(job)s"

# Locks: none. The latest ticks of some schedules, newest first, with what has become
# of their jobs: a look at three primary keys for each.
LATEST = f"""
SELECT t.schedule_id, t.due_at, t.ticked_at, t.outcome, t.job_id, t.message_id,
       t.missed, t.asked_by,
       CASE WHEN t.job_id IS NULL THEN NULL
            WHEN j.id IS NOT NULL THEN
                {live_state("j")}
            WHEN a.id IS NOT NULL THEN a.state
            WHEN d.id IS NOT NULL THEN 'dead' END AS state,
       extract(epoch FROM coalesce(a.finished_at - a.started_at,
                                   d.finished_at - d.started_at))::float8 AS ran_seconds
  FROM unnest(%(schedules)s::bigint[]) AS asked(id)
 CROSS JOIN LATERAL (SELECT * FROM pgqueue_tick t WHERE t.schedule_id = asked.id
                      ORDER BY t.due_at DESC LIMIT %(limit)s) t
  LEFT JOIN pgqueue_job j ON j.id = t.job_id
  LEFT JOIN LATERAL (SELECT id, state, started_at, finished_at
                       FROM pgqueue_archived_job a
                      WHERE a.id = t.job_id AND j.id IS NULL
                        AND a.finished_at >= t.ticked_at LIMIT 1) a ON true
  LEFT JOIN pgqueue_dead_letter d ON d.id = t.job_id AND j.id IS NULL AND a.id IS NULL
 ORDER BY t.schedule_id, t.due_at DESC
"""

# Locks: row locks on what is deleted. Old ticks, the latest ones of each schedule
# excepted; all of those whose schedule is gone.
PURGE = f"""
WITH purged AS (
    DELETE FROM pgqueue_tick WHERE id = ANY(ARRAY(
        SELECT t.id FROM pgqueue_tick t
         WHERE t.ticked_at < statement_timestamp() - %(keep)s::interval
           AND t.due_at < coalesce(
               (SELECT k.due_at FROM pgqueue_tick k WHERE k.schedule_id = t.schedule_id
                 ORDER BY k.due_at DESC OFFSET {TICKS_KEPT - 1} LIMIT 1),
               (SELECT '-infinity'::timestamptz FROM pgqueue_schedule s
                 WHERE s.id = t.schedule_id),
               'infinity')
         ORDER BY t.id LIMIT %(limit)s))
    RETURNING 1)
SELECT count(*), NULL::timestamptz FROM purged
"""


@dataclass(frozen=True, slots=True)
class TickRow:
    """A tick, and what has become of its job."""

    schedule_id: int
    due_at: datetime
    ticked_at: datetime
    outcome: str
    job_id: int | None
    message_id: int | None
    missed: int
    asked_by: str | None
    # Of the job; None: there is none, or its retention has passed.
    state: str | None
    ran_seconds: float | None


def due(cursor: Cursor, but: Sequence[int] = ()) -> list[ScheduleRow]:
    """Return schedules that are due or must be reckoned, *but* those of these ids."""
    cursor.execute(DUE, {"but": list(but), "limit": DUE_ROWS_MAX})
    return read_rows(cursor)


def coming(cursor: Cursor, *, limit: int) -> list[ScheduleRow]:
    """
    Return the schedules that have the next ticks, those that can have none first.

    Args:
        cursor: An open cursor.
        limit: How many at most, of those with a tick; as many of the others.
    """
    cursor.execute(COMING, {"limit": limit})
    return read_rows(cursor)


def until_next(cursor: Cursor, but: Sequence[int] = ()) -> float | None:
    """Return in how many seconds due() has something; 0 or less: now; None: never."""
    seconds: float | None = value(cursor, NEXT, but=list(but))
    return seconds


def is_overdue(cursor: Cursor, late: timedelta) -> bool:
    """Return whether a tick has been due for longer than *late*."""
    return bool(value(cursor, OVERDUE, late=late))


def advance(
    cursor: Cursor, row: ScheduleRow, *, latest: datetime, next_tick: datetime | None
) -> bool:
    """
    Move a schedule on to the tick *latest*; the caller's transaction issues it.

    False: another scheduler has, or does so now, or the schedule was changed since
    *row* was read, or somebody has its row locked.
    """
    params = {
        "id": row.id,
        "revision": row.revision,
        "seen": row.last_tick,
        "latest": latest,
        "next": next_tick,
        "patience": LOCK_PATIENCE,
    }
    return has_row(cursor, ADVANCE, **params)


def reckon(
    cursor: Cursor,
    row: ScheduleRow,
    next_tick: datetime | None,
    error: str | None = None,
) -> bool:
    """
    Write when a schedule is due next, or why it is not issued.

    False: its row was changed since *row* was read, or somebody has it locked.
    """
    params = {
        "id": row.id,
        "revision": row.revision,
        "seen": row.last_tick,
        "next": next_tick,
        "error": error,
    }
    return has_row(cursor, RECKON, **params)


def insert(
    cursor: Cursor,
    schedule_id: int,
    due_at: datetime | None,
    *,
    outcome: str = "enqueued",
    missed: int = 0,
    by: str = "",
) -> int | None:
    """
    Insert a tick and return its id; None: that moment has one.

    Args:
        cursor: An open cursor; the caller commits.
        schedule_id: Of the schedule.
        due_at: None: now, by hand.
        outcome: Of TickOutcome.
        missed: How many before it were dropped.
        by: Who asked for it by hand; "": the time did.
    """
    return record(
        int,
        cursor,
        INSERT,
        schedule=schedule_id,
        due_at=due_at,
        outcome=outcome,
        missed=missed,
        by=by,
    )


def is_busy(cursor: Cursor, schedule_id: int) -> bool:
    """Return whether a job of the schedule is waiting, running or in back-off."""
    return bool(value(cursor, BUSY, schedule=schedule_id))


def note_job(
    cursor: Cursor, tick_id: int, job_id: int | None, outcome: str = "enqueued"
) -> None:
    """Write which job came of a tick."""
    cursor.execute(NOTE_JOB, {"tick": tick_id, "job": job_id, "outcome": outcome})


def note_message(cursor: Cursor, tick_id: int, message_id: int) -> None:
    """Write which message was published at a tick."""
    cursor.execute(NOTE_MESSAGE, {"tick": tick_id, "message": message_id})


def own_job(cursor: Cursor, schedule_id: int, job_id: int) -> None:
    """Write whose tick a job is of that was just stored by other means."""
    cursor.execute(OWN_JOB, {"schedule": schedule_id, "job": job_id})


def latest(cursor: Cursor, schedule_ids: Sequence[int], limit: int) -> list[TickRow]:
    """Return the *limit* latest ticks of each of these schedules, newest first."""
    return rows(TickRow, cursor, LATEST, schedules=list(schedule_ids), limit=limit)
