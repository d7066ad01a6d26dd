"""
Settlement: what is written of an attempt that ended, and what is told of it.

Between the tenth hop of a job's life and the eleventh, for whoever settles: a worker's
settler, by the batch; the transaction of an atomic task; a test, in its own thread.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from types import TracebackType
from typing import Any

from django.db import DataError, IntegrityError
from psycopg.errors import CheckViolation

from django_pgqueue import signals, telemetry
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import LeaseLost, RemoteError
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues import lease, output, settle
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.settle import Ended
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.errors import (
    OUR_FILES,
    class_like,
    message_of,
    traceback_of,
    type_of,
)
from django_pgqueue.tasks.outcome import (
    Cancelled,
    Expired,
    GaveUp,
    Performed,
    Retried,
    Shared,
    Succeeded,
)

# Reported -----------------------------------------------------------------------------
# Reported: an error as log handlers get it, which send it to people and to services.
#
# They print variables, too: Sentry and Django's error mails those of each frame, and so
# the arguments of a job. What PGQUEUE["REDACT"] hides would leave the house.


# Of an error, and of those that it came from.
CHAIN_MAX = 10


def reported(error: BaseException, chain: int = CHAIN_MAX) -> RemoteError:
    """
    Return what stands for *error* in a report: its class, its words and its places.

    The words are without what PGQUEUE["REDACT"] hides; the places are without their
    variables, which are gone from the frames of *error*, too.

    Args:
        error: Of an attempt that is over.
        chain: How many are told, with those that it came from.
    """
    patterns = get_settings().redact
    made = class_like(*type_of(error))(redact_text(message_of(error), patterns))
    made.__traceback__ = _emptied(error.__traceback__)
    if chain > 1:
        if error.__cause__ is not None:
            made.__cause__ = reported(error.__cause__, chain - 1)
        elif error.__context__ is not None and not error.__suppress_context__:
            made.__context__ = reported(error.__context__, chain - 1)
    made.__suppress_context__ = error.__suppress_context__
    return made


def _emptied(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback through frames that have no variables any more."""
    kept: list[TracebackType] = []
    while trace is not None:
        try:
            trace.tb_frame.clear()
        except RuntimeError:
            pass  # It still runs, so its variables would be seen.
        else:
            if trace.tb_frame.f_code.co_filename not in OUR_FILES:
                kept.append(trace)
        trace = trace.tb_next
    made: TracebackType | None = None
    for each in reversed(kept):
        made = TracebackType(made, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return made


# Settlement ---------------------------------------------------------------------------


Write = Callable[..., set[int]]

# By outcome: its kind, as settle_stale names it and the worker counts it.
KIND_OF: dict[type, str] = {
    Retried: "retry",
    GaveUp: "dead",
    Expired: "expire",
    Cancelled: "cancel",
}

# By kind: the statement that writes it.
WRITES: dict[str, Write] = {
    "ack": settle.ack,
    "forget": settle.forget,
    "retry": settle.retry,
    "dead": settle.dead_letter,
    "expire": settle.expire,
    "cancel": settle.cancel,
    "note": settle.note,
}


def kind_of(performed: Performed) -> str:
    """Return which statement writes an outcome."""
    if performed.settled:
        return "note"
    outcome = type(performed.outcome)
    if outcome is Succeeded:
        return "forget" if performed.leaves_no_trace else "ack"
    return KIND_OF[outcome]


def is_noted(performed: Performed, *, has_word: bool) -> bool:
    """Whether what came after a settle is for its row; a word has no result yet."""
    return performed.error is not None or (
        has_word and (performed.result or performed.note or performed.log) is not None
    )


def write(
    write_ended: Write,
    rows: list[Ended],
    *,
    worker: str,
    cursor: Callable[[], AbstractContextManager[Any]],
    make_day: Callable[[], object],
) -> set[int]:
    """
    Write rows of one kind; return the ids that were still ours.

    Args:
        write_ended: One of WRITES.
        rows: What it writes.
        worker: Who has the leases.
        cursor: Opens one; what fails there breaks no other statement.
        make_day: Makes the archive's partition of today. It is missing when the leader
            was away for a week, or there is none. Falsy: it was there.
    """
    try:
        with cursor() as opened:
            return write_ended(opened, worker=worker, ended=rows)
    except (CheckViolation, DataError, IntegrityError):
        if not make_day():
            raise
    with cursor() as opened:
        return write_ended(opened, worker=worker, ended=rows)


def write_last(
    cursor: Cursor, ended: Sequence[tuple[Claimed, Performed]], *, worker: str
) -> None:
    """Write the last reports of jobs, and what they emitted, before their rows move."""
    said: dict[tuple[int, int], list[output.Said]] = {}
    for job, performed in ended:
        if performed.progress is not None:
            lease.report_progress(
                cursor,
                worker=worker,
                job_id=job.id,
                delivery=job.delivery,
                progress=performed.progress,
            )
        if performed.emitted:
            key = job.id, job.delivery
            said[key] = [output.Said(*key, *each) for each in performed.emitted]
    if not said:
        return
    together = [each for values in said.values() for each in values]
    written = output.append(cursor, together, worker=worker)
    for key, values in said.items():
        if key not in written:
            output.append(cursor, values, worker=worker, is_last=True)


def ack_within(
    cursor: Cursor,
    job: Claimed,
    performed: Performed,
    *,
    worker: str,
) -> bool:
    """Write the ack of an atomic task, and what it has said last; LeaseLost."""
    write_last(cursor, [(job, performed)], worker=worker)
    row = ended(job, performed, worker=worker, waited=0.0)
    if not WRITES[kind_of(performed)](cursor, worker=worker, ended=[row]):
        raise LeaseLost(job.id, job.delivery)
    return True


def tells_success() -> bool:
    """Whether anybody hears of each ack: a receiver, or a log at DEBUG."""
    return bool(signals.job_succeeded.receivers) or telemetry.logger.isEnabledFor(
        logging.DEBUG
    )


def tell(
    job: Claimed,
    performed: Performed,
    *,
    holder: int | None = None,
    to: telemetry.Sink = telemetry.WORKER,
) -> None:
    """Tell what became of a job; *holder*: it was cancelled in favour of that one."""
    outcome, sender, error = (
        performed.outcome,
        registry.tasks.get(job.task),
        performed.error,
    )
    if type(outcome) is Succeeded:
        ran_seconds, result = performed.ran_seconds or 0.0, performed.result
        telemetry.succeeded(sender, job, ran_seconds=ran_seconds, result=result, to=to)
    elif holder is not None:
        telemetry.superseded(sender, job, holder=holder, to=to)
    elif isinstance(outcome, Retried):
        delay = outcome.delay.total_seconds()
        telemetry.retried(sender, job, error=error, delay_seconds=delay, to=to)
    elif isinstance(outcome, GaveUp):
        telemetry.dead(
            sender, job, reason=outcome.reason, error=error, report=reported, to=to
        )
    elif isinstance(outcome, Cancelled):
        telemetry.cancelled(sender, job, to=to)
    else:
        telemetry.expired(sender, job, to=to)


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
    if performed.error is None and type(outcome) is Succeeded:
        # Nearly all.
        if performed.log is not None:
            error = log_entry(job, performed, worker=worker)
        return Ended(
            job.id, job.delivery, performed.ran_seconds, performed.result, error
        )
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
    words = performed.words if isinstance(performed, Shared) else None
    message, trace = words or (message_of(error), traceback_of(error))
    entry = {
        "kind": "error",
        "type": ".".join(type_of(error)),
        "message": message,
        "traceback": trace,
    }
    return json.dumps(entry | _attempt_entry(job, performed, worker, waited))


def log_entry(job: Claimed, performed: Performed, *, worker: str) -> str:
    """Return the entry with the log of an attempt that succeeded, as JSON."""
    entry = _attempt_entry(job, performed, worker, performed.ran_seconds or 0.0)
    # What is noted beside it, that the result is too large, say, is the same entry.
    noted = json.loads(performed.note) if performed.note else {}
    return json.dumps({"kind": "log", **entry, **noted})


def _attempt_entry(
    job: Claimed, performed: Performed, worker: str, waited: float
) -> dict[str, Any]:
    """Return what an entry says of the attempt itself."""
    at = job.claimed_at + timedelta(seconds=waited)
    entry = {
        "attempt": job.attempt,
        "delivery": job.delivery,
        "worker": worker,
        "at": at.isoformat(),
        "ran_seconds": performed.ran_seconds,
    }
    return entry if performed.log is None else entry | {"log": performed.log}
