"""
Perform: call the task of one claimed job, and say what becomes of the job.

The eighth hop of a job's life. The order of every attempt, whoever makes it: refuse()
and prepare(), which say before whether it runs; then the other calls of its run are
read, all of them are told as started, the task is called, and each call gets its end.
Threads, runners and tests call attempt(); an event loop begin_run() and
perform_async(). Whatever the task does wrong ends here as an outcome of this one job.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import time
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from asgiref.sync import async_to_sync

from django_pgqueue import signals, telemetry
from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks import payload
from django_pgqueue.tasks.atomic import in_transaction
from django_pgqueue.tasks.context import JobControl
from django_pgqueue.tasks.declared import DeclaredTask
from django_pgqueue.tasks.errors import message_of, type_of
from django_pgqueue.tasks.gathered import Collected, collect
from django_pgqueue.tasks.middleware import wrap
from django_pgqueue.tasks.outcome import Outcome, Performed, Succeeded, outcome_after
from django_pgqueue.tasks.prepare import Prepared, context_of, note_of
from django_pgqueue.tasks.registry import find_task

if TYPE_CHECKING:
    from django_pgqueue.tasks.output import JobLog

NO_SPAN = nullcontext()

SUCCEEDED = Succeeded()

# How a task with ack_policy="manual" fails when it says nothing.
SILENT = (
    "returned without a word: with ack_policy='manual' it must call ack(), reject() or "
    "retry() of its context, or raise."
)


# Calls the function that it is given; what is raised in there from outside, by a
# watchdog, is raised in there alone.
Guard = Callable[[Callable[[], Any]], Any]


def unguarded(call: Callable[[], Any]) -> Any:
    """Call it; nobody looks at the time."""
    return call()


def unasked() -> BaseException | None:
    """Return None: nobody has cancelled the task, so it has done so itself."""
    return None


def attempt(
    job: Claimed,
    prepared: Prepared,
    settings: Settings,
    *,
    installation: str,
    control: JobControl,
    guard: Guard = unguarded,
    others: Sequence[Claimed] = (),
    to: telemetry.Sink = telemetry.WORKER,
) -> tuple[Performed, Sequence[Performed]]:
    """
    Run a job; return what becomes of it, and of each of *others*.

    Args as of perform(), and: *others*, the other calls of its run, of a task with
    accumulate; *to*, where it is told that they start.
    """
    run = None
    if prepared.options.accumulate is not None:
        run = begin_run(job, prepared, others, settings, to=to)
        prepared = run.prepared
    _tell_start(prepared.task, job, to)
    token = telemetry.current.set((telemetry.fields_of, job))
    try:
        performed = perform(
            job,
            prepared,
            settings,
            installation=installation,
            control=control,
            guard=guard,
        )
    finally:
        telemetry.current.reset(token)
    return (performed, ()) if run is None else run.shared(performed)


def begin_run(
    job: Claimed,
    prepared: Prepared,
    others: Sequence[Claimed],
    settings: Settings,
    *,
    to: telemetry.Sink = telemetry.WORKER,
) -> Collected:
    """Read the calls of *others*, and tell that those start that can."""
    run = collect(job, prepared, others, settings)
    for other in run.fit:
        _tell_start(prepared.task, other, to)
    return run


def _tell_start(task: DeclaredTask, job: Claimed, to: telemetry.Sink) -> None:
    if signals.job_started.receivers or to.logger.isEnabledFor(logging.DEBUG):
        telemetry.started(task, job, to=to)


def perform(
    job: Claimed,
    prepared: Prepared,
    settings: Settings,
    *,
    installation: str,
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
        control: What its context works on; by default on nothing but itself.
        guard: Calls the task; TaskTimeout is raised in there.
    """
    control = JobControl() if control is None else control
    task, options = prepared.task, prepared.options
    if options.is_plain and guard is unguarded:
        # As below; nearly all jobs need no more.
        context: Any = None
        started = time.monotonic()
        try:
            span = _attempting()(job, prepared) if settings.trace else None
            if span is None:
                value = task.run(context, prepared.args, prepared.kwargs)
            else:
                with span:
                    value = task.run(context, prepared.args, prepared.kwargs)
        except BaseException as error:
            return after_error(
                job, prepared, control, error, time.monotonic() - started
            )
        return after_return(
            job, prepared, settings, control, value, time.monotonic() - started
        )
    running = Running(job, prepared, settings, installation, control)
    call = running.call
    if task.options.is_async:
        # Where there is no event loop, as in testing.drain(). Middleware inside: it
        # gets an awaitable, as in a worker.
        call = functools.partial(_run_async, call)
    try:
        if options.ack_policy == "first":
            control.say(None)
            running.begin()
        if task.options.atomic:
            return in_transaction(
                settings.database,
                guard,
                call,
                control,
                returned=running.returned,
                failed=running.failed,
            )
        value = guard(call)
    except BaseException as error:
        return running.failed(error)
    return running.returned(value)


async def perform_async(
    job: Claimed,
    prepared: Prepared,
    settings: Settings,
    *,
    installation: str,
    control: JobControl | None = None,
    why_cancelled: Callable[[], BaseException | None] = unasked,
) -> Performed:
    """
    Await the task of a job, on a running event loop; as perform().

    It happens in one asyncio task, so that whoever cancels that one reaches the user's
    code and nothing else. CancelledError is caught, too.

    Args as of perform(), and: *why_cancelled*, what a CancelledError that leaves the
    task stands for: the timeout, say. None: for itself, as any other failure.
    """
    control = JobControl() if control is None else control
    # Of this asyncio task, and what it starts.
    telemetry.current.set((telemetry.fields_of, job))
    running = Running(job, prepared, settings, installation, control)
    try:
        if prepared.options.ack_policy == "first":
            await asyncio.to_thread(control.say, None)
            running.begin()
        value = await awaitable(running.call())
    except BaseException as error:
        meant = why_cancelled() if isinstance(error, asyncio.CancelledError) else None
        if meant is None:
            return running.failed(error)
        meant.__cause__ = error
        return running.failed(meant)
    return running.returned(value)


class Running:
    """A task that is called: what is called, and what becomes of its job by its end."""

    def __init__(
        self,
        job: Claimed,
        prepared: Prepared,
        settings: Settings,
        installation: str,
        control: JobControl,
    ) -> None:
        self._job = job
        self._prepared = prepared
        self._settings = settings
        self._control = control
        task, middleware = prepared.task, prepared.options.middleware
        context: Any = None
        if task.options.takes_context or middleware:
            # Not for nothing: it costs more than anything else in here.
            context = context_of(job, prepared, installation, control)
        self._log: JobLog | None = None if context is None else context.lines
        self.call: Callable[[], Any] = functools.partial(
            task.run, context, prepared.args, prepared.kwargs
        )
        if middleware:
            self.call = wrap(middleware, context, self.call)
        if settings.trace:
            self.call = _in_span(self.call, job, prepared)
        self._began = time.monotonic()

    def begin(self) -> None:
        """Measure from now on, and not from before the ack."""
        self._began = time.monotonic()

    def returned(self, value: Any) -> Performed:
        """Say what becomes of the job, now that its task has returned *value*."""
        ran_seconds = time.monotonic() - self._began
        performed = after_return(
            self._job, self._prepared, self._settings, self._control, value, ran_seconds
        )
        return self._with_log(performed)

    def failed(self, error: BaseException) -> Performed:
        """Say what becomes of the job, now that its task has raised *error*."""
        ran_seconds = time.monotonic() - self._began
        performed = after_error(
            self._job, self._prepared, self._control, error, ran_seconds
        )
        return self._with_log(performed)

    def _with_log(self, performed: Performed) -> Performed:
        if self._log is not None:
            performed.log = self._log.lines()
        return performed


def _in_span(
    call: Callable[[], Any], job: Claimed, prepared: Prepared
) -> Callable[[], Any]:
    """Return *call* with a span around it, and around middleware."""

    def traced() -> Any:
        with _attempting()(job, prepared) or NO_SPAN:
            return call()

    async def traced_async() -> Any:
        with _attempting()(job, prepared) or NO_SPAN:
            return await awaitable(call())

    return traced_async if prepared.task.options.is_async else traced


# An import in each attempt would take as long as all of it where nobody records.
@functools.cache
def _attempting() -> Callable[[Claimed, Prepared], AbstractContextManager[Any] | None]:
    """Return what makes the span of an attempt, below what has sent the job."""
    from django_pgqueue.tasks.tracing import attempting

    return attempting


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
    if options.ack_policy == "manual" and not control.has_word:
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
    if control.has_word:
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


def _word(
    job: Claimed, prepared: Prepared, control: JobControl
) -> tuple[Outcome, bool | None]:
    """Return what was said through the context, and whether it is written."""
    if not control.has_word:
        return Succeeded(), None
    word = after_word(job, prepared, control.word)
    return word.outcome, control.is_settled


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
        performed.result = payload.encode_result(value, settings.result_bytes_max)
    except ValueError as error:
        performed.note = note_of(f"The result is not stored: {error}.")
    except Exception as error:
        # Code of the value's own class was called, and raised.
        words = f"{type_of(error)[1]}: {message_of(error)}"
        performed.note = note_of(f"The result is not stored: {words}.")
