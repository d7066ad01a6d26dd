"""
History: every change of every job, kept by a trigger that only these tests install.

A change that is rolled back leaves nothing, so the history is what was committed. The
changes of one job are in its order of ``seq``: whoever changes a row waits for the
commit of whoever changed it before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

INSTALL = """
CREATE TABLE faults_history (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    backend int NOT NULL DEFAULT pg_backend_pid(),
    application text NOT NULL DEFAULT current_setting('application_name'),
    transaction text NOT NULL DEFAULT pg_current_xact_id()::text,
    place text NOT NULL,
    operation text NOT NULL,
    job bigint NOT NULL,
    key text,
    task text NOT NULL,
    how text,
    customer text,
    schedule bigint,
    tick text,
    workflow bigint,
    saga text,
    old jsonb,
    new jsonb
);

CREATE FUNCTION faults_row(whole jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'attempt', whole -> 'attempt', 'max_attempts', whole -> 'max_attempts',
        'deliveries', whole -> 'deliveries', 'crashes', whole -> 'crashes',
        'leased_by', whole -> 'leased_by',
        'leased_at', extract(epoch FROM (whole ->> 'leased_at')::timestamptz),
        'visible_at', extract(epoch FROM (whole ->> 'visible_at')::timestamptz),
        'fair_due_at', CASE WHEN whole ->> 'lane_policy' = 'fair' THEN
            extract(epoch FROM (whole ->> 'lane_due_at')::timestamptz) END,
        'error_kind', whole -> 'errors' -> -1 ->> 'kind',
        'error_type', whole -> 'errors' -> -1 ->> 'type',
        'state', coalesce(whole -> 'state', whole -> 'reason'))
$$;

CREATE FUNCTION faults_remember() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
    after jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
    known jsonb := coalesce(after, before);
BEGIN
    INSERT INTO faults_history (place, operation, job, key, task, how, customer,
                                schedule, tick, workflow, saga, old, new)
    VALUES (TG_ARGV[0], TG_OP, (known ->> 'id')::bigint,
            known -> 'kwargs' ->> 'key',
            substring(known ->> 'task' FROM '[^.]*$'),
            known -> 'kwargs' ->> 'how',
            known -> 'kwargs' ->> 'customer',
            (known ->> 'schedule_id')::bigint,
            known -> 'headers' ->> 'pgqueue.tick',
            (known ->> 'workflow_id')::bigint,
            known -> 'kwargs' ->> 'saga',
            CASE WHEN before IS NOT NULL THEN faults_row(before) END,
            CASE WHEN after IS NOT NULL THEN faults_row(after) END);
    RETURN NULL;
END $$;

CREATE TRIGGER faults AFTER INSERT OR UPDATE OR DELETE ON pgqueue_job
    FOR EACH ROW EXECUTE FUNCTION faults_remember('queue');
CREATE TRIGGER faults AFTER INSERT OR UPDATE OR DELETE ON pgqueue_archived_job
    FOR EACH ROW EXECUTE FUNCTION faults_remember('archive');
CREATE TRIGGER faults AFTER INSERT OR UPDATE OR DELETE ON pgqueue_dead_letter
    FOR EACH ROW EXECUTE FUNCTION faults_remember('dead');

-- What a client's transaction writes beside its jobs, and what a task writes.
CREATE TABLE faults_operation (key text PRIMARY KEY);
CREATE TABLE faults_effect (
    job bigint NOT NULL,
    delivery int NOT NULL,
    key text NOT NULL,
    isolation text NOT NULL DEFAULT current_setting('transaction_isolation'),
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""

READ = """
SELECT seq, extract(epoch FROM at)::float8, backend, application, transaction,
       place, operation, job, key, task, how, old, new, schedule,
       extract(epoch FROM tick::timestamptz)::float8, customer,
       workflow, saga
  FROM faults_history ORDER BY job, seq
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a row said of its job's lease and fate; times in seconds of the epoch."""

    attempt: int = 0
    max_attempts: int = 5
    deliveries: int = 0
    crashes: int = 0
    leased_by: str | None = None
    leased_at: float | None = None
    visible_at: float | None = None
    fair_due_at: float | None = None  # While it is parked for its turn.
    error_kind: str | None = None
    error_type: str | None = None
    state: str | None = None  # Of the archive, or the reason of a dead letter.


class Change(NamedTuple):
    """One committed change of one row."""

    seq: int = 0
    at: float = 0.0
    backend: int = 1
    application: str = ""
    transaction: str = ""
    place: str = "queue"  # Or "archive", "dead".
    operation: str = "UPDATE"  # Or "INSERT", "DELETE".
    job: int = 1
    key: str | None = None  # Which enqueue it is of.
    task: str = "work"
    how: str | None = None  # The variant of the task.
    old: Row | None = None
    new: Row | None = None
    schedule: int | None = None
    tick: float | None = None  # The moment of the tick, by the job's headers.
    customer: str | None = None  # Whose jobs share a group, or a limit.
    workflow: int | None = None
    saga: str | None = None  # Whose step it is, by the client's key.


def read(cursor: Any) -> list[Change]:
    """Return the whole history, job by job."""
    cursor.execute(READ)
    return [
        Change._make((*row[:11], _row(row[11]), _row(row[12]), *row[13:]))
        for row in cursor.fetchall()
    ]


def _row(told: dict[str, Any] | None) -> Row | None:
    return None if told is None else Row(**told)
