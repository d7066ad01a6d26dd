"""
Settle: end attempts. One fenced statement per kind and batch.

The last hop of a job's life. Every statement presents (id, delivery) and the worker's
name, and answers with the ids that were still that worker's. The others are *stale*:
their lease was taken over, nothing was written for them, and the caller counts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.errors import ROOM_FOR_ONE
from django_pgqueue.queues.lanes import PACED
from django_pgqueue.queues.unique import IS_KEYLESS, retake

# What a job keeps wherever its row is; the same list in every move between tables.
KEPT_COLUMNS = (
    "id, queue, task, args, kwargs, headers, priority, run_after, enqueued_at,"
    " expires_at, attempt, max_attempts, crashes, deliveries, dedup_key,"
    " accumulate_key, lane, lane_capacity, lane_spacing, lane_burst, lane_policy,"
    " progress, workflow_id, parent_id, message_id, schedule_id"
)

# The same for the archive, whose rows say which key they had, however long they had it.
ARCHIVED_COLUMNS = KEPT_COLUMNS.replace("dedup_key", "coalesce(dedup_key, queued_key)")

# One more error at the end, if there is one.
APPENDED = f"""
CASE WHEN ended.error IS NULL THEN j.errors
     ELSE {ROOM_FOR_ONE} || ended.error::jsonb END
"""

# The rows of a batch that are still this worker's: found by the primary key, id =
# ANY(array), and then joined with what is to be written. Run it where the planner is
# told how to join (Link.steady_cursor()): of a table that was empty when it was
# analysed it expects one row, and would compare each with the whole batch.
FENCE = """
 WHERE j.id = ANY(%(ids)s::text::bigint[])
   AND j.id = ended.id AND j.deliveries = ended.delivery AND j.leased_by = %(worker)s
"""

# Of jobs that leave nothing behind but that they are done: nearly all.
# Locks: row locks on the deleted rows, until the statement's transaction ends; they
# wait for an enqueue of the same dedup key, and never for a claim (SKIP LOCKED).
# The DELETE feeds the INSERT: a job is in exactly one table in every snapshot.
# Raises 23514 when the archive has no partition for today: the caller makes it
# (postgres/day_tables.py) and runs the same statement again.
# Arrays come as text, here and below: a driver takes longer for a list.
ARCHIVE_PLAIN = f"""
WITH gone AS (
    DELETE FROM pgqueue_job AS j
     USING unnest(%(ids)s::text::bigint[], %(deliveries)s::text::int[],
                  %(ran)s::text::float8[]) AS ended(id, delivery, ran_seconds)
    {FENCE}
    RETURNING j.*, ended.ran_seconds)
INSERT INTO pgqueue_archived_job ({KEPT_COLUMNS}, errors, state, started_at,
                                  finished_at, worker)
SELECT {ARCHIVED_COLUMNS}, errors, %(state)s,
       statement_timestamp() - make_interval(secs => ran_seconds),
       statement_timestamp(), leased_by
  FROM gone
RETURNING id
"""

# The same for jobs of tasks that keep no archive. Locks: as ARCHIVE_PLAIN.
FORGET = f"""
DELETE FROM pgqueue_job AS j
 USING unnest(%(ids)s::text::bigint[], %(deliveries)s::text::int[])
       AS ended(id, delivery)
{FENCE}
RETURNING j.id
"""

# Locks: as ARCHIVE_PLAIN.
ARCHIVE = f"""
WITH gone AS (
    DELETE FROM pgqueue_job AS j
     USING unnest(%(ids)s::text::bigint[], %(deliveries)s::text::int[],
                  %(results)s::text[], %(errors)s::text[], %(ran)s::text::float8[])
           AS ended(id, delivery, result, error, ran_seconds)
    {FENCE}
    RETURNING j.*, {APPENDED} AS all_errors, ended.result, ended.ran_seconds)
INSERT INTO pgqueue_archived_job ({KEPT_COLUMNS}, errors, state, result, started_at,
                                  finished_at, worker)
SELECT {ARCHIVED_COLUMNS}, all_errors, %(state)s, result::jsonb,
       statement_timestamp() - make_interval(secs => ran_seconds),
       statement_timestamp(), leased_by
  FROM gone
RETURNING id
"""

# Locks: as ARCHIVE_PLAIN.
DEAD_LETTER = f"""
WITH gone AS (
    DELETE FROM pgqueue_job AS j
     USING unnest(%(ids)s::text::bigint[], %(deliveries)s::text::int[],
                  %(reasons)s::text[], %(errors)s::text[], %(ran)s::text::float8[])
           AS ended(id, delivery, reason, error, ran_seconds)
    {FENCE}
    RETURNING j.*, {APPENDED} AS all_errors, ended.reason, ended.ran_seconds)
INSERT INTO pgqueue_dead_letter ({KEPT_COLUMNS}, queued_key, errors, reason, started_at,
                                 finished_at, worker)
SELECT {KEPT_COLUMNS}, queued_key, all_errors, reason,
       statement_timestamp() - make_interval(secs => ran_seconds),
       statement_timestamp(), leased_by
  FROM gone
RETURNING id
"""

# Locks: row locks on the updated rows, for the statement. attempts_back: 1 gives the
# attempt back (snooze, hold), 0 burns it. A retry never meets its own dedup key: the
# row keeps it, or is said to be keyless and asks for it afterwards (unique.py).
# A job that was asked to stop is due at once, whatever its delay: it does not run
# again, since the next claim tells its worker of the request and settles it as
# cancelled. It is not archived here: a request that commits while this statement waits
# for the row would then be missed, or make the settle look stale. Due at once is also
# one that got the signal that it is about to wait for: queues/durable.py.
# A job of a limit is parked again: what waits takes no place of others. One of a group
# keeps its own, or its order would be lost; but where there is a rate, each attempt
# has its turn, and the first of a parked group holds the others up. And where its group
# skips what fails, it makes way until its next attempt. One of a fair lane has had its
# turn.
DUE_AGAIN = """
statement_timestamp() + make_interval(
    secs => CASE WHEN j.cancel_requested_at IS NULL
                      AND NOT j.headers ? 'pgqueue.signalled'
                 THEN ended.delay_seconds ELSE 0 END)
"""
# Either without a lane, as SQL may write it, says nothing.
TAKES_TURNS = f"""
{PACED} OR (j.lane IS NOT NULL
            AND CASE j.lane_policy WHEN 'fair' THEN false WHEN 'skip' THEN true
                     ELSE j.lane_capacity IS NOT NULL END)
"""
# A delivery that ended in a snooze, or held, is none too many: from the tenth on it is
# noted, and DELIVERIES_MAX does not count it.
PLANNED = """
CASE WHEN ended.attempts_back = 0 OR j.deliveries < 10 THEN '{}'
     ELSE jsonb_build_object('pgqueue.planned',
         CASE WHEN jsonb_typeof(j.headers->'pgqueue.planned') = 'number'
              THEN least((j.headers->>'pgqueue.planned')::numeric, j.deliveries - 1)
              ELSE 0 END + 1) END
"""
RETRY = f"""
UPDATE pgqueue_job AS j
   SET visible_at = CASE WHEN {TAKES_TURNS} THEN NULL ELSE {DUE_AGAIN} END,
       lane_due_at = CASE WHEN {TAKES_TURNS} THEN {DUE_AGAIN} END,
       leased_by = NULL, leased_at = NULL,
       attempt = greatest(j.attempt - ended.attempts_back, 0),
       headers = CASE WHEN ended.unknown AND NOT j.headers ? 'pgqueue.unknown_since'
                      THEN j.headers || jsonb_build_object(
                          'pgqueue.unknown_since', statement_timestamp())
                      WHEN j.headers ? 'pgqueue.signalled'
                      THEN j.headers - 'pgqueue.signalled' ELSE j.headers END
                 || {PLANNED},
       errors = {APPENDED}
  FROM unnest(%(ids)s::text::bigint[], %(deliveries)s::text::int[],
              %(delays)s::float8[], %(attempts_back)s::int[], %(errors)s::text[],
              %(unknown)s::bool[])
       AS ended(id, delivery, delay_seconds, attempts_back, error, unknown)
{FENCE}
RETURNING j.id, {IS_KEYLESS}
"""

# Locks: a row lock on each row that is still there, which waits for a COMMIT of ours
# that is still on its way; a plain look would miss it.
# Which of these settles were applied, although the answer was lost: the row has gone
# with this delivery, or it is nobody's and still carries this delivery; or somebody
# claimed it since, and it carries the error that this delivery's retry has written.
HAS_ERROR = """
EXISTS (SELECT 1 FROM jsonb_array_elements({row}.errors) entry
         WHERE entry -> 'delivery' = to_jsonb(asked.delivery)
           AND entry ->> 'kind' = 'error')
"""
APPLIED = f"""
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(deliveries)s::int[])
                  AS asked(id, delivery)),
here AS MATERIALIZED (
    SELECT j.id, j.deliveries, j.leased_by, j.errors FROM pgqueue_job j
     WHERE j.id = ANY(%(ids)s::bigint[]) FOR UPDATE)
SELECT asked.id FROM asked JOIN here ON here.id = asked.id
 WHERE (here.deliveries = asked.delivery AND here.leased_by IS NULL)
    OR (here.deliveries > asked.delivery AND {HAS_ERROR.format(row="here")})
"""
APPLIED_AWAY = f"""
SELECT a.id FROM pgqueue_archived_job a
  JOIN unnest(%(ids)s::bigint[], %(deliveries)s::int[]) AS asked(id, delivery)
    ON a.id = asked.id
 WHERE a.id = ANY(%(ids)s::bigint[])
   AND (a.deliveries = asked.delivery
        OR (a.deliveries > asked.delivery AND {HAS_ERROR.format(row="a")}))
UNION ALL
SELECT d.id FROM pgqueue_dead_letter d
  JOIN unnest(%(ids)s::bigint[], %(deliveries)s::int[]) AS asked(id, delivery)
    ON d.id = asked.id
 WHERE d.id = ANY(%(ids)s::bigint[])
   AND (d.deliveries = asked.delivery
        OR (d.deliveries > asked.delivery AND {HAS_ERROR.format(row="d")}))
"""


# Locks: none. Ids whose rows are in no queue.
AWAY = """
SELECT asked.id FROM unnest(%(ids)s::bigint[]) AS asked(id)
 WHERE NOT EXISTS (SELECT 1 FROM pgqueue_job j WHERE j.id = asked.id)
"""

# Locks: row locks on jobs and their workflows, for the statement; it waits for none.
# Which jobs somebody else has locked, or a workflow above them.
HELD_UP = """
WITH RECURSIVE mine AS MATERIALIZED (
    SELECT j.id, j.workflow_id FROM pgqueue_job j
     WHERE j.id = ANY(%(ids)s::bigint[]) AND j.leased_by = %(worker)s),
above(workflow_id, id) AS (
    SELECT DISTINCT workflow_id, workflow_id FROM mine WHERE workflow_id IS NOT NULL
    UNION
    SELECT above.workflow_id, w.parent_id
      FROM above JOIN pgqueue_workflow w ON w.id = above.id
     WHERE w.parent_id IS NOT NULL),
free AS MATERIALIZED (
    SELECT j.id FROM pgqueue_job j
     WHERE j.id = ANY(ARRAY(SELECT id FROM mine)) FOR UPDATE SKIP LOCKED),
free_workflow AS MATERIALIZED (
    SELECT w.id FROM pgqueue_workflow w
     WHERE w.id = ANY(ARRAY(SELECT id FROM above)) FOR NO KEY UPDATE SKIP LOCKED)
SELECT mine.id FROM mine
 WHERE mine.id NOT IN (SELECT id FROM free)
    OR mine.workflow_id IN (
       SELECT above.workflow_id FROM above JOIN pgqueue_workflow w ON w.id = above.id
        WHERE w.id NOT IN (SELECT id FROM free_workflow))
"""

# Locks: none. Whose transaction has locked a job, or a workflow above it; a row says by
# which transaction, unless several share the lock.
HOLDERS = """
WITH RECURSIVE above(id, xmax, parent_id) AS (
    SELECT w.id, w.xmax, w.parent_id FROM pgqueue_workflow w
     WHERE w.id IN (SELECT j.workflow_id FROM pgqueue_job j
                     WHERE j.id = ANY(%(ids)s::bigint[]))
    UNION
    SELECT w.id, w.xmax, w.parent_id
      FROM above JOIN pgqueue_workflow w ON w.id = above.parent_id)
SELECT DISTINCT l.pid FROM pg_locks l
 WHERE l.locktype = 'transactionid' AND l.granted AND l.pid <> pg_backend_pid()
   AND l.transactionid::text IN (
       SELECT above.xmax::text FROM above
        UNION ALL
       SELECT j.xmax::text FROM pgqueue_job j WHERE j.id = ANY(%(ids)s::bigint[]))
 ORDER BY l.pid
"""

# Locks: row locks on the archived rows, for the statement. The fence of a settle, on
# rows that this worker has archived itself. finished_at stays: it is the partition's
# key, and says when the job was acked.
NOTE = f"""
UPDATE pgqueue_archived_job AS j
   SET errors = {APPENDED}, result = coalesce(ended.result::jsonb, j.result)
  FROM unnest(%(ids)s::text::bigint[], %(deliveries)s::text::int[],
              %(results)s::text[], %(errors)s::text[])
       AS ended(id, delivery, result, error)
 WHERE j.id = ANY(%(ids)s::text::bigint[])
   AND j.id = ended.id AND j.deliveries = ended.delivery AND j.worker = %(worker)s
RETURNING j.id
"""


@dataclass(slots=True)
class Ended:
    """
    One attempt that ended, and what should become of its job.

    Which fields are read depends on the function that gets it.
    """

    id: int
    delivery: int
    ran_seconds: float | None = None  # None: it never started.
    result: str | None = None  # JSON text.
    error: str | None = None  # A JSON object as text, added to the job's errors.
    reason: str | None = None  # Of a dead letter.
    delay_seconds: float = 0.0  # Until the next attempt.
    gives_attempt_back: bool = False
    unknown_task: bool = False
    # Set by retry(): the job that has its dedup key, in whose favour it has ended.
    superseded_by: int | None = None

    @property
    def has_run(self) -> bool:
        """Whether its task failed or snoozed, rather than being held or interrupted."""
        return not self.gives_attempt_back or (
            self.ran_seconds is not None and self.error is None
        )


def ack(cursor: Cursor, *, worker: str, ended: Sequence[Ended]) -> set[int]:
    """
    Move succeeded jobs to the archive; return the ids that were still ours.

    Raises:
        CheckViolation: (23514, Django's IntegrityError) no partition for today.
    """
    return _archive(cursor, worker, ended, "succeeded")


def forget(cursor: Cursor, *, worker: str, ended: Sequence[Ended]) -> set[int]:
    """Delete succeeded jobs that keep no archive; return the ids still ours."""
    return _ids(cursor, FORGET, _leases(worker, ended))


def expire(cursor: Cursor, *, worker: str, ended: Sequence[Ended]) -> set[int]:
    """Move jobs whose time has passed to the archive, never run; as ack()."""
    return _archive(cursor, worker, ended, "expired")


def cancel(cursor: Cursor, *, worker: str, ended: Sequence[Ended]) -> set[int]:
    """Move jobs that were asked to stop, or stop themselves, to the archive."""
    return _archive(cursor, worker, ended, "cancelled")


def note(cursor: Cursor, *, worker: str, ended: Sequence[Ended]) -> set[int]:
    """
    Add an error, or a result, to jobs that this worker has archived already.

    For a task that is acked before it runs. The state stays, and so do the times.
    Returns the ids that were found.
    """
    params = _params(worker, ended)
    params["results"] = [item.result for item in ended]
    return _ids(cursor, NOTE, params)


def dead_letter(cursor: Cursor, *, worker: str, ended: Sequence[Ended]) -> set[int]:
    """Move jobs that gave up to the dead letters; return the ids still ours."""
    params = _params(worker, ended)
    params["reasons"] = [item.reason for item in ended]
    params["ran"] = _numbers(item.ran_seconds for item in ended)
    return _ids(cursor, DEAD_LETTER, params)


def retry(cursor: Cursor, *, worker: str, ended: Sequence[Ended]) -> set[int]:
    """
    Make jobs visible again after their delay; return the ids still ours.

    One whose dedup key another job has taken meanwhile is archived as cancelled
    instead; its superseded_by says which job that is.
    """
    params = _params(worker, ended)
    params["delays"] = [item.delay_seconds for item in ended]
    params["attempts_back"] = [int(item.gives_attempt_back) for item in ended]
    params["unknown"] = [item.unknown_task for item in ended]
    cursor.execute(RETRY, params)
    is_keyless = dict(cursor.fetchall())
    if any(is_keyless.values()):
        keyless = [item for item in ended if is_keyless.get(item.id)]
        superseded = retake(cursor, [(item.id, item.has_run) for item in keyless])
        for item in keyless:
            item.superseded_by = superseded.get(item.id)
    return set(is_keyless)


def held_up(cursor: Cursor, *, worker: str, ids: Sequence[int]) -> set[int]:
    """Return which of a worker's jobs a settle would have to wait for now."""
    return _ids(cursor, HELD_UP, {"ids": list(ids), "worker": worker})


def holders(cursor: Cursor, ids: Sequence[int]) -> list[int]:
    """Return the process ids of the sessions that have locked one of these jobs."""
    return sorted(_ids(cursor, HOLDERS, {"ids": list(ids)}))


def applied(
    cursor: Cursor, leases: Sequence[tuple[int, int]], *, is_away: bool = False
) -> set[int]:
    """
    Tell which settles of (id, delivery) were written although no answer came.

    Waits for a statement of a lost connection that may still commit. Two statements:
    the second one's snapshot is later than the end of that wait.

    Args:
        cursor: An open cursor.
        leases: What was to be settled.
        is_away: Of jobs that leave no trace: one whose row is away was settled.
    """
    ids = [job_id for job_id, _ in leases]
    params = {"ids": ids, "deliveries": [delivery for _, delivery in leases]}
    found = _ids(cursor, APPLIED, params) | _ids(cursor, APPLIED_AWAY, params)
    if is_away:
        found |= _ids(cursor, AWAY, {"ids": ids})
    return found


def _archive(
    cursor: Cursor, worker: str, ended: Sequence[Ended], state: str
) -> set[int]:
    plain = [item for item in ended if item.result is None and item.error is None]
    settled: set[int] = set()
    if plain:
        params = _leases(worker, plain)
        params["ran"] = _numbers(item.ran_seconds for item in plain)
        params["state"] = state
        settled = _ids(cursor, ARCHIVE_PLAIN, params)
    if len(plain) < len(ended):
        others = [i for i in ended if i.result is not None or i.error is not None]
        params = _params(worker, others)
        params["results"] = [item.result for item in others]
        params["ran"] = _numbers(item.ran_seconds for item in others)
        params["state"] = state
        settled |= _ids(cursor, ARCHIVE, params)
    return settled


def _leases(worker: str, ended: Sequence[Ended]) -> dict[str, Any]:
    return {
        "worker": worker,
        "ids": _numbers(item.id for item in ended),
        "deliveries": _numbers(item.delivery for item in ended),
    }


def _params(worker: str, ended: Sequence[Ended]) -> dict[str, Any]:
    return {**_leases(worker, ended), "errors": [item.error for item in ended]}


def _numbers(values: Iterable[float | None]) -> str:
    """Return an array literal. repr() of a float is read back as the same number."""
    return f"{{{','.join(['NULL' if v is None else repr(v) for v in values])}}}"


def _ids(cursor: Cursor, statement: str, params: dict[str, Any]) -> set[int]:
    cursor.execute(statement, params)
    return {job_id for (job_id,) in cursor.fetchall()}
