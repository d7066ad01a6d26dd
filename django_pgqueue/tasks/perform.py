"""
Perform: run one claimed job and say what becomes of it.

The eighth hop of a job's life, used by the worker's threads and by testing.drain().
Whatever the row or the task does wrong ends here as an outcome of this one job.

The steps are apart, so that an event loop takes the same ones: refuse(), prepare(),
context_of(), then the call, then after_return() or after_error().
"""

from __future__ import annotations

import functools
import inspect
import json
import random
import time
import traceback
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from asgiref.sync import async_to_sync

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import (
    RemoteError,
    TaskTimeout,
    UndecodablePayload,
    UnknownTask,
)
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks import payload
from django_pgqueue.tasks.atomic import in_transaction
from django_pgqueue.tasks.context import Inline, JobContext, JobControl
from django_pgqueue.tasks.messages import unwanted_message
from django_pgqueue.tasks.middleware import wrap
from django_pgqueue.tasks.options import ResolvedOptions
from django_pgqueue.tasks.outcome import (
    GaveUp,
    Outcome,
    Reject,
    Retried,
    Succeeded,
    decide,
    decide_before,
    decide_unknown,
)
from django_pgqueue.tasks.registry import find_task
from django_pgqueue.tasks.task import Task

# Characters kept of a traceback: its beginning and its end.
TRACEBACK_CHARACTERS_MAX = 16_384
MESSAGE_CHARACTERS_MAX = 2_048
NAME_CHARACTERS_MAX = 512

OUR_FILES = frozenset(
    {__file__, Task.run.__code__.co_filename, in_transaction.__code__.co_filename}
)

UNKNOWN_SINCE = "pgqueue.unknown_since"
DELIVERIES_BEFORE = "pgqueue.deliveries_before"
EDITS = "pgqueue.edits"

SUCCEEDED = Succeeded()

# How a task with ack_policy="manual" fails when it says nothing.
SILENT = (
    "returned without a word: with ack_policy='manual' it must call ack(), reject() or "
    "retry() of its context, or raise."
)

# Calls the function that it is given; what is raised in there from outside, by a
# watchdog, is raised in there alone.
Guard = Callable[[Callable[[], Any]], Any]


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
    note: str | None = None  # An entry beside the outcome, as JSON.
    # None: the outcome is still to be written. True: it is, by the task's own word or
    # transaction; an error or a result came after it. False: it cannot be, since the
    # lease was lost.
    settled: bool | None = None
    progress: str | None = None  # JSON text of the last report, if it is not written.
    # It succeeded, and its task keeps no archive.
    leaves_no_trace: bool = False


@dataclass(slots=True)
class Shared(Performed):
    """How a run of several jobs ended, for one of them."""

    # Message and traceback of the error: once for all of them.
    words: tuple[str, str] | None = None


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
        outcome = _held(job, settings)
        held = Performed(outcome, error)
        if UNKNOWN_SINCE not in job.headers:
            # Said once, not with every look.
            held.note = _note(str(error), kind="unknown_task")
        return held
    try:
        options = task.resolve(job.queue, settings)
        args, kwargs = payload.decode(job.args, job.kwargs)
        headers = {} if job.headers == "{}" else payload.decode_value(job.headers)
    except UndecodablePayload as error:
        return Performed(GaveUp("undecodable"), error)
    except Reject as error:
        return Performed(GaveUp("rejected"), error)
    except Exception as error:
        # Fetching a model instance failed: the database's fault, so it may pass.
        options = task.resolve(job.queue, settings)
        return Performed(outcome_after(job, options, error), error)
    if task.receives:
        unwanted = unwanted_message(task, job.queue, args)
        if unwanted is not None:
            performed = Performed(SUCCEEDED, note=_note(unwanted, kind="unwanted"))
            performed.leaves_no_trace = not options.archive
            return performed
    return Prepared(task, options, args, kwargs, headers)


def context_of(
    job: Claimed, prepared: Prepared, installation: str, control: JobControl
) -> JobContext:
    """Return what the task sees of its job, and can say to it through *control*."""
    headers = prepared.headers
    key = f"{installation}-{job.id}"
    if EDITS in headers:
        # Other arguments are another piece of work to those who are told the key.
        key = f"{key}.{headers[EDITS]}"
    return JobContext(
        id=job.id,
        task=job.task,
        queue=job.queue,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        headers=headers,
        idempotency_key=key,
        tags=_tags(headers),
        ack_policy=prepared.options.ack_policy,
        control=control,
    )


def unguarded(call: Callable[[], Any]) -> Any:
    """Call it; nobody looks at the time."""
    return call()


def perform(
    job: Claimed,
    prepared: Prepared,
    settings: Settings,
    *,
    installation: str,
    clock: Callable[[], float] = time.monotonic,
    control: JobControl | None = None,
    guard: Guard = unguarded,
) -> Performed:
    """
    Call the task, and say what becomes of the job.

    Catches everything, SystemExit too: a task must not end its worker by raising.

    Args:
        job: As it was claimed.
        prepared: Its task and arguments.
        settings: For the jobs' database, and the limit of a result.
        installation: The uuid that begins its idempotency key.
        clock: Monotonic seconds.
        control: What its context works on; by default on nothing but itself.
        guard: Calls the task; TaskTimeout is raised in there.
    """
    control = Inline() if control is None else control
    task, options = prepared.task, prepared.options
    context: Any = None
    if options.is_plain and guard is unguarded:
        started = clock()
        try:
            value = task.run(context, prepared.args, prepared.kwargs)
        except BaseException as error:
            return after_error(job, prepared, control, error, clock() - started)
        return after_return(job, prepared, settings, control, value, clock() - started)
    if task.options.takes_context or options.middleware:
        # Not for nothing: it costs more than anything else in here.
        context = context_of(job, prepared, installation, control)
    call: Callable[[], Any] = functools.partial(
        task.run, context, prepared.args, prepared.kwargs
    )
    if options.middleware:
        call = wrap(options.middleware, context, call)
    if task.options.is_async:
        # Where there is no event loop, as in testing.drain(). Middleware inside: it
        # gets an awaitable, as in a worker.
        call = functools.partial(_run_async, call)
    started = clock()
    try:
        if options.ack_policy == "first":
            control.say(None)
            started = clock()
        if task.options.atomic:
            return _perform_atomic(job, prepared, settings, control, call, guard, clock)
        value = guard(call)
    except BaseException as error:
        return after_error(job, prepared, control, error, clock() - started)
    return after_return(job, prepared, settings, control, value, clock() - started)


def after_return(
    job: Claimed,
    prepared: Prepared,
    settings: Settings,
    control: JobControl,
    value: Any,
    ran_seconds: float,
) -> Performed:
    """Say what becomes of a job whose task returned *value*."""
    options = prepared.options
    if value is None and options.is_plain:
        performed = Performed(SUCCEEDED, None, ran_seconds)
        performed.leaves_no_trace = not options.archive
        return performed
    policy = prepared.options.ack_policy
    if policy == "manual" and not control.has_said:
        return after_error(
            job, prepared, control, RuntimeError(f"{job.task} {SILENT}"), ran_seconds
        )
    outcome, settled = _word(job, prepared, control)
    performed = Performed(outcome, None, ran_seconds, settled=settled)
    if _leaves_no_trace(prepared, outcome):
        performed.leaves_no_trace = True
    elif value is not None and isinstance(outcome, Succeeded):
        _store_result(performed, value, settings)
    return performed


def after_error(
    job: Claimed,
    prepared: Prepared,
    control: JobControl,
    error: BaseException,
    ran_seconds: float | None,
) -> Performed:
    """Say what becomes of a job whose task raised *error*."""
    if isinstance(error, TaskTimeout) and not error.args:
        # It was raised from outside, as a bare class.
        error.args = (timeout_message(job, prepared.options.timeout),)
    if control.has_said:
        outcome, settled = _word(job, prepared, control)
        performed = Performed(outcome, error, ran_seconds, settled=settled)
        performed.leaves_no_trace = _leaves_no_trace(prepared, outcome)
        return performed
    is_cancelled, ran = control.is_cancelled, ran_seconds or 0.0
    outcome = outcome_after(job, prepared.options, error, is_cancelled, ran)
    return Performed(outcome, error, ran_seconds)


def after_word(
    job: Claimed, prepared: Prepared, error: BaseException | None
) -> Performed:
    """Say what becomes of a job whose task says so while it runs; see JobControl."""
    outcome = outcome_after(job, prepared.options, error, False, 0.0)
    performed = Performed(outcome, error)
    performed.leaves_no_trace = _leaves_no_trace(prepared, outcome)
    return performed


def _leaves_no_trace(prepared: Prepared, outcome: Outcome) -> bool:
    return not prepared.options.archive and isinstance(outcome, Succeeded)


def timeout_message(job: Claimed, timeout: timedelta | None) -> str:
    """Say that a job ran longer than its timeout."""
    limit = "" if timeout is None else f" of {timeout.total_seconds():g} s"
    return f"{job.task} ran longer than its timeout{limit}."


def timed_out(
    job: Claimed,
    settings: Settings,
    error: TaskTimeout,
    ran_seconds: float | None,
    *,
    is_cancelled: bool = False,
) -> Performed:
    """Say what becomes of a job whose attempt was ended by its timeout."""
    options = find_task(job.task).resolve(job.queue, settings)
    outcome = outcome_after(job, options, error, is_cancelled, ran_seconds or 0.0)
    return Performed(outcome, error, ran_seconds)


def type_of(error: BaseException) -> tuple[str, str]:
    """Return the module and the name of an error's class, as errors keep them."""
    kind = type(error)
    try:
        names = f"{kind.__module__}", f"{kind.__qualname__}"
    except BaseException:  # Its metaclass says what these are.
        names = "builtins", "BaseException"
    module, name = (_shortened(text, NAME_CHARACTERS_MAX) for text in names)
    return module, name


def message_of(error: BaseException) -> str:
    """Return what an error says, as a job's errors keep it."""
    if isinstance(error, RemoteError):
        return str(error)
    return _shortened(_message(error), MESSAGE_CHARACTERS_MAX)


def traceback_of(error: BaseException) -> str:
    """Return an error's traceback, as a job's errors keep it."""
    if isinstance(error, RemoteError):
        return error.traceback_text
    return _shortened(_traceback(error), TRACEBACK_CHARACTERS_MAX)


def _perform_atomic(
    job: Claimed,
    prepared: Prepared,
    settings: Settings,
    control: JobControl,
    call: Callable[[], Any],
    guard: Guard,
    clock: Callable[[], float],
) -> Performed:
    started = clock()

    def returned(value: Any) -> Performed:
        ran_seconds = clock() - started
        return after_return(job, prepared, settings, control, value, ran_seconds)

    def failed(error: BaseException) -> Performed:
        return after_error(job, prepared, control, error, clock() - started)

    return in_transaction(
        settings.database, guard, call, control, returned=returned, failed=failed
    )


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


def outcome_after(
    job: Claimed,
    options: ResolvedOptions,
    error: BaseException | None,
    is_cancelled: bool = False,
    ran_seconds: float = 0.0,
    draw: Callable[[], float] = random.random,
) -> Outcome:
    """Say what follows an attempt, by the policy of its task; *draw*: of the jitter."""
    age = job.claimed_at - job.enqueued_at + timedelta(seconds=ran_seconds)
    try:
        return decide(
            options.retry,
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            error=error,
            age=age,
            ack_policy=options.ack_policy,
            is_cancelled=is_cancelled,
            random=draw,
        )
    except Exception:
        # A back-off function of the user's that raises must not cost the job.
        return Retried(timedelta(minutes=1))


def _word(
    job: Claimed, prepared: Prepared, control: JobControl
) -> tuple[Outcome, bool | None]:
    """Return what was said through the context, and whether it is written."""
    if not control.has_said:
        return Succeeded(), None
    word = after_word(job, prepared, control.said)
    return word.outcome, control.is_settled


def _tags(headers: Mapping[str, Any]) -> tuple[str, ...]:
    tags = headers.get("tags")
    # A row written by SQL may hold anything.
    return tuple(map(str, tags)) if isinstance(tags, list) else ()


def _run_async(call: Callable[[], Any]) -> Any:
    async def run() -> Any:
        return await awaitable(call())

    return async_to_sync(run)()


def awaitable(value: Any) -> Any:
    """
    Return what an async task, or the middleware around it, gave to be awaited.

    Raises:
        TypeError: It is none.
    """
    # What async def makes, first: the general question takes ten times as long.
    if type(value) is not types.CoroutineType and not inspect.isawaitable(value):
        raise TypeError(
            f"a middleware around an async task returned {type(value).__qualname__}: "
            f"it must be declared with async def, or return what call_next() returned."
        )
    return value


def _store_result(performed: Performed, value: Any, settings: Settings) -> None:
    """Put the result in *performed*, or a note why it is not stored."""
    try:
        text = payload.encode_value(value)
    except ValueError as error:
        performed.note = _note(f"The result is not stored: {error}.")
        return
    except Exception as error:
        # Code of the value's own class was called, and raised.
        words = f"{type_of(error)[1]}: {message_of(error)}"
        performed.note = _note(f"The result is not stored: {words}.")
        return
    size = len(text.encode())
    if size > settings.result_bytes_max:
        performed.note = _note(
            f"The result is not stored: it takes {size:,} bytes as JSON; the limit "
            f"is {settings.result_bytes_max:,} (PGQUEUE['RESULT_BYTES_MAX'])."
        )
        return
    performed.result = text


def _note(message: str, kind: str = "result") -> str:
    return json.dumps({"kind": kind, "message": message})


def _message(error: BaseException) -> str:
    try:
        # Not a class of its own, whose methods could raise later.
        return "".join(str(error))
    except BaseException as failure:
        return f"(its __str__ raised {type(failure).__name__})"


def _traceback(error: BaseException) -> str:
    try:
        trace = error.__traceback__
        # The first frames are ours and say nothing about the task.
        while trace is not None and trace.tb_frame.f_code.co_filename in OUR_FILES:
            trace = trace.tb_next
        return "".join(traceback.format_exception(type(error), error, trace))
    except BaseException as failure:
        return f"(formatting it raised {type(failure).__name__})"


def _shortened(text: str, characters_max: int) -> str:
    # What PostgreSQL cannot store is shown escaped: NUL, and surrogates.
    text = text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()
    if len(text) <= characters_max:
        return text
    half = characters_max // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters …\n{text[-half:]}"
