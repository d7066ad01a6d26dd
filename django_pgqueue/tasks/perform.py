"""
Perform: run one claimed job and say what becomes of it.

The eighth hop of a job's life, used by the worker's threads and by testing.drain().
Whatever the row or the task does wrong ends here as an outcome of this one job.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import TaskTimeout, UndecodablePayload, UnknownTask
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.settle import Ended
from django_pgqueue.tasks import payload
from django_pgqueue.tasks.context import JobContext
from django_pgqueue.tasks.options import ResolvedOptions
from django_pgqueue.tasks.outcome import (
    GaveUp,
    Outcome,
    Reject,
    Retried,
    decide,
    decide_before,
    decide_unknown,
)
from django_pgqueue.tasks.registry import find_task
from django_pgqueue.tasks.task import Task

# Characters kept of a traceback: its beginning and its end.
TRACEBACK_CHARACTERS_MAX = 16_384
MESSAGE_CHARACTERS_MAX = 2_048

OUR_FILES = frozenset({__file__, Task.run.__code__.co_filename})

UNKNOWN_SINCE = "pgqueue.unknown_since"
DELIVERIES_BEFORE = "pgqueue.deliveries_before"


@dataclass(slots=True)
class Prepared:
    """A job whose task is known and whose arguments were read."""

    task: Task[Any, Any]
    options: ResolvedOptions
    args: list[Any]
    kwargs: dict[str, Any]
    headers: dict[str, Any]


@dataclass(slots=True)
class Performed:
    """How an attempt ended."""

    outcome: Outcome
    error: BaseException | None = None
    ran_seconds: float | None = None  # None: it never started.
    result: str | None = None  # JSON text.
    note: str | None = None  # Why a result was not stored.


def refuse(job: Claimed, settings: Settings) -> Performed | None:
    """Ask the policy before the attempt; None: the job may run."""
    before = 0
    if job.delivery > settings.deliveries_max and DELIVERIES_BEFORE in job.headers:
        before = _deliveries_before(job)
    refused = decide_before(
        job,
        deliveries_max=settings.deliveries_max,
        crashes_max=settings.crashes_max,
        deliveries_before=before,
    )
    return None if refused is None else Performed(refused)


def prepare(job: Claimed, settings: Settings) -> Prepared | Performed:
    """
    Find the job's task and read its arguments; or say why it cannot run.

    Never raises for anything that a row can hold.
    """
    try:
        task = find_task(job.task)
    except UnknownTask as error:
        return Performed(_held(job, settings), error)
    try:
        options = task.resolve(job.queue, settings)
        args, kwargs = payload.decode(job.args, job.kwargs)
        headers = payload.decode_value(job.headers)
    except UndecodablePayload as error:
        return Performed(GaveUp("undecodable"), error)
    except Reject as error:
        return Performed(GaveUp("rejected"), error)
    except Exception as error:
        # Fetching a model instance failed: the database's fault, so it may pass.
        policy = task.resolve(job.queue, settings).retry
        return Performed(_after(job, policy, error), error)
    return Prepared(task, options, args, kwargs, headers)


def perform(
    job: Claimed,
    prepared: Prepared,
    settings: Settings,
    *,
    installation: str,
    clock: Callable[[], float] = time.monotonic,
) -> Performed:
    """
    Call the task, and say what becomes of the job.

    Catches everything, SystemExit too: a task must not end its worker by raising.
    """
    context = JobContext(
        id=job.id,
        task=job.task,
        queue=job.queue,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        headers=prepared.headers,
        idempotency_key=f"{installation}-{job.id}",
    )
    started = clock()
    try:
        value = prepared.task.run(context, prepared.args, prepared.kwargs)
    except BaseException as error:
        ran_seconds = clock() - started
        if isinstance(error, TaskTimeout) and not error.args:
            # It was raised from outside, as a bare class.
            error.args = (timeout_message(job, prepared.options.timeout),)
        outcome = _after(job, prepared.options.retry, error)
        return Performed(outcome, error, ran_seconds)
    ran_seconds = clock() - started
    performed = Performed(_after(job, prepared.options.retry, None), None, ran_seconds)
    if value is not None:
        _store_result(performed, value, settings)
    return performed


def timeout_message(job: Claimed, timeout: timedelta | None) -> str:
    """Say that a job ran longer than its timeout."""
    limit = "" if timeout is None else f" of {timeout.total_seconds():g} s"
    return f"{job.task} ran longer than its timeout{limit}."


def timed_out(
    job: Claimed, settings: Settings, error: TaskTimeout, ran_seconds: float | None
) -> Performed:
    """Say what becomes of a job whose attempt was ended by its timeout."""
    policy = find_task(job.task).resolve(job.queue, settings).retry
    return Performed(_after(job, policy, error), error, ran_seconds)


def ended(job: Claimed, performed: Performed, *, worker: str, waited: float) -> Ended:
    """
    Return what the settle of this attempt writes.

    Args:
        job: As it was claimed.
        performed: How it ended.
        worker: Who ran it, for the error entry.
        waited: Seconds since the claim, which dates the error entry by the
            database's clock.
    """
    outcome = performed.outcome
    error = performed.note
    if performed.error is not None and not (
        isinstance(outcome, Retried) and not outcome.is_failure
    ):
        error = error_entry(job, performed, worker=worker, waited=waited)
    return Ended(
        id=job.id,
        delivery=job.delivery,
        ran_seconds=performed.ran_seconds,
        result=performed.result,
        error=error,
        reason=outcome.reason if isinstance(outcome, GaveUp) else None,
        delay_seconds=outcome.delay.total_seconds()
        if isinstance(outcome, Retried)
        else 0.0,
        gives_attempt_back=isinstance(outcome, Retried) and outcome.gives_attempt_back,
        unknown_task=isinstance(outcome, Retried) and outcome.unknown_task,
    )


def error_entry(
    job: Claimed, performed: Performed, *, worker: str, waited: float
) -> str:
    """Return the entry that a failed attempt adds to the job's errors, as JSON."""
    error = performed.error
    assert error is not None
    at = job.claimed_at + timedelta(seconds=waited)
    entry = {
        "kind": "error",
        "type": f"{type(error).__module__}.{type(error).__qualname__}",
        "message": _shortened(_message(error), MESSAGE_CHARACTERS_MAX),
        "traceback": _shortened(_traceback(error), TRACEBACK_CHARACTERS_MAX),
        "attempt": job.attempt,
        "delivery": job.delivery,
        "worker": worker,
        "at": at.isoformat(),
        "ran_seconds": performed.ran_seconds,
    }
    return json.dumps(entry)


def _deliveries_before(job: Claimed) -> int:
    """Return the deliveries that were before the latest redrive."""
    try:
        noted = json.loads(job.headers)[DELIVERIES_BEFORE]
    except (KeyError, TypeError, ValueError, RecursionError):
        return 0
    return noted if isinstance(noted, int) and 0 <= noted < job.delivery else 0


def _held(job: Claimed, settings: Settings) -> Outcome:
    grace = timedelta(seconds=settings.unknown_task_grace_seconds)
    since = None
    try:
        since = payload.READERS["datetime"](json.loads(job.headers)[UNKNOWN_SINCE])
        return decide_unknown(unknown_since=since, now=job.claimed_at, grace=grace)
    except (KeyError, TypeError, ValueError, RecursionError):
        return decide_unknown(unknown_since=None, now=job.claimed_at, grace=grace)


def _after(job: Claimed, policy: Any, error: BaseException | None) -> Outcome:
    try:
        return decide(
            policy, attempt=job.attempt, max_attempts=job.max_attempts, error=error
        )
    except Exception:
        # A back-off function of the user's that raises must not cost the job.
        return Retried(timedelta(minutes=1))


def _store_result(performed: Performed, value: Any, settings: Settings) -> None:
    """Put the result in *performed*, or a note why it is not stored."""
    try:
        text = payload.encode_value(value)
    except ValueError as error:
        performed.note = _note(f"The result is not stored: {error}.")
        return
    size = len(text.encode())
    if size > settings.result_bytes_max:
        performed.note = _note(
            f"The result is not stored: it takes {size:,} bytes as JSON; the limit "
            f"is {settings.result_bytes_max:,} (PGQUEUE['RESULT_BYTES_MAX'])."
        )
        return
    performed.result = text


def _note(message: str) -> str:
    return json.dumps({"kind": "result", "message": message})


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:
        return f"(its __str__ raised {type(failure).__name__})"


def _traceback(error: BaseException) -> str:
    try:
        trace = error.__traceback__
        # The first frames are ours and say nothing about the task.
        while trace is not None and trace.tb_frame.f_code.co_filename in OUR_FILES:
            trace = trace.tb_next
        return "".join(traceback.format_exception(type(error), error, trace))
    except Exception as failure:
        return f"(formatting it raised {type(failure).__name__})"


def _shortened(text: str, characters_max: int) -> str:
    # What PostgreSQL cannot store is shown escaped: NUL, and surrogates.
    text = text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()
    if len(text) <= characters_max:
        return text
    half = characters_max // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters …\n{text[-half:]}"
