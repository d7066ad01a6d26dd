"""Results: a job's row as django.tasks shows it."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from django_pgqueue import signals
from django_pgqueue.backends.django_api import (
    DEFAULT_TASK_BACKEND_ALIAS,
    AnyResult,
    AnyTask,
    TaskError,
    TaskResultStatus,
)
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.find import Row
from django_pgqueue.tasks.context import JobContext
from django_pgqueue.tasks.payload import decode_value
from django_pgqueue.tasks.result import JobResult

# The header that says which entry of TASKS enqueued a job; without: the default one.
BACKEND_HEADER = "pgqueue.backend"

# Ours, by the four that Django knows.
STATUSES = {
    "scheduled": TaskResultStatus.READY,
    "ready": TaskResultStatus.READY,
    "retrying": TaskResultStatus.READY,
    "parked": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "succeeded": TaskResultStatus.SUCCESSFUL,
    "dead": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
    "expired": TaskResultStatus.FAILED,
}

# What an entry without a Python exception is shown as: a lost process, a lapsed lease.
ERROR_CLASS = "django_pgqueue.exceptions.PgQueueError"

# Entries that an attempt left behind, rather than an operator.
ATTEMPTS = frozenset({"error", "worker_lost", "lease_expired"})

_worker: list[str] = []


def this_worker() -> str:
    """Return the name of the worker of this process, or else host and process id."""
    return _worker[-1] if _worker else f"{socket.gethostname()}-{os.getpid()}"


def _note_worker(sender: Any, worker: str, **kwargs: Any) -> None:
    _worker[:] = [worker]


signals.worker_started.connect(_note_worker, dispatch_uid="django_pgqueue.backends")


@dataclass(frozen=True, slots=True, kw_only=True)
class PgQueueTaskResult(AnyResult):  # type: ignore[misc]  # Frozen, whatever stubs say.
    """Django's TaskResult, with a handle on the job."""

    @property
    def job(self) -> JobResult[Any]:
        """The job's own handle: its detailed status, cancel(), retry(), get()."""
        return JobResult(int(self.id))


def new_result(
    task: AnyTask, alias: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> PgQueueTaskResult:
    """
    Return the result of a job that is about to be stored; it has no id yet.

    Raises:
        TypeError, ValueError: An argument is not JSON; nothing else is accepted here.
    """
    return _result(task, alias, args=list(args), kwargs=dict(kwargs))


def running_result(
    task: AnyTask, context: JobContext, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> PgQueueTaskResult:
    """Return the result that a running task finds in its context."""
    now = timezone.now()
    return _result(
        task,
        context.headers.get(BACKEND_HEADER, DEFAULT_TASK_BACKEND_ALIAS),
        id=str(context.id),
        status=TaskResultStatus.RUNNING,
        started_at=now,
        last_attempted_at=now,
        args=list(args),
        kwargs=dict(kwargs),
        worker_ids=_names(context.attempt),
    )


def signalled_result(
    task: AnyTask,
    job: Claimed,
    status: TaskResultStatus,
    *,
    error: BaseException | None = None,
    trace: str = "",
    value: Any = None,
) -> PgQueueTaskResult:
    """
    Return the result that a worker's signal carries, without asking the database.

    Of earlier attempts only the number is known: worker_ids has an entry for each, and
    errors has the last one alone. get_result() has them all.
    """
    ended = status in (TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED)
    errors = []
    if error is not None:
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        errors.append(TaskError(exception_class_path=path, traceback=trace))
    result = _result(
        task,
        _object(job.headers).get(BACKEND_HEADER, DEFAULT_TASK_BACKEND_ALIAS),
        id=str(job.id),
        status=status,
        enqueued_at=job.enqueued_at,
        started_at=job.claimed_at,
        last_attempted_at=job.claimed_at,
        finished_at=timezone.now() if ended else None,
        args=_list(job.args),
        kwargs=_object(job.kwargs),
        errors=errors,
        worker_ids=_names(job.attempt),
    )
    object.__setattr__(result, "_return_value", value)
    return result


def stored_result(task: AnyTask, row: Row) -> PgQueueTaskResult:
    """
    Return the result of a job as its row has it.

    Its task is the one that was enqueued: with the row's queue, priority and time.
    """
    alias = _object(row.headers).get(BACKEND_HEADER, DEFAULT_TASK_BACKEND_ALIAS)
    entries = [entry for entry in _list(row.errors) if isinstance(entry, dict)]
    attempts = [entry for entry in entries if entry.get("kind") in ATTEMPTS]
    workers = [str(entry.get("worker") or "") for entry in attempts]
    if row.worker and row.status in ("running", "succeeded"):
        workers.append(row.worker)
    tried = bool(workers)
    last = row.started_at or (_started(attempts[-1]) if attempts else None)
    result = _result(
        _as_enqueued(
            task,
            priority=row.priority,
            queue_name=row.queue,
            run_after=row.run_after,
            backend=alias,
        ),
        alias,
        id=str(row.id),
        status=STATUSES[row.status],
        enqueued_at=row.enqueued_at,
        started_at=(_started(attempts[0]) if attempts else None) or last,
        last_attempted_at=last if tried else None,
        finished_at=row.finished_at,
        args=_list(row.args),
        kwargs=_object(row.kwargs),
        errors=list(_errors(entries)),
        worker_ids=workers,
    )
    if row.result is not None:
        object.__setattr__(result, "_return_value", decode_value(row.result))
    return result


def _as_enqueued(task: AnyTask, **said: Any) -> AnyTask:
    """Return *task* with what using() has said, if that differs."""
    if all(getattr(task, name) == value for name, value in said.items()):
        return task
    # Not using(), nor from 6.1 on a copy: these refuse a queue that the settings do not
    # allow any more.
    enqueued = object.__new__(type(task))
    for name in (each.name for each in dataclasses.fields(task)):
        object.__setattr__(enqueued, name, said.get(name, getattr(task, name)))
    return enqueued


def _result(task: AnyTask, alias: str, **fields: Any) -> PgQueueTaskResult:
    unknown: dict[str, Any] = {
        "id": "",
        "status": TaskResultStatus.READY,
        "enqueued_at": None,
        "started_at": None,
        "last_attempted_at": None,
        "finished_at": None,
        "errors": [],
        "worker_ids": [],
    }
    return PgQueueTaskResult(task=task, backend=alias, **{**unknown, **fields})


def _errors(entries: Iterable[Mapping[str, Any]]) -> Iterable[TaskError]:
    for entry in entries:
        if entry.get("kind") in ATTEMPTS:
            yield TaskError(
                exception_class_path=str(entry.get("type") or ERROR_CLASS),
                traceback=str(entry.get("traceback") or entry.get("message") or ""),
            )


def _started(entry: Mapping[str, Any]) -> datetime | None:
    try:
        ended = datetime.fromisoformat(entry["at"])
        return ended - timedelta(seconds=float(entry.get("ran_seconds") or 0.0))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _names(attempt: int) -> list[str]:
    return [this_worker()] * max(attempt, 1)


def _list(text: str) -> list[Any]:
    value = _loaded(text)
    return value if isinstance(value, list) else []


def _object(text: str) -> dict[str, Any]:
    value = _loaded(text)
    return value if isinstance(value, dict) else {}


def _loaded(text: str) -> Any:
    # A row that somebody wrote in SQL may hold JSON that Python cannot read.
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
