"""
Perform async: run one claimed job of an async task, on a running event loop.

The same steps as perform(), and the same outcomes. What happens in here happens in one
asyncio task, so that whoever cancels that one reaches the user's code and nothing else.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from typing import Any

from django_pgqueue.conf import Settings
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.context import Inline, JobControl
from django_pgqueue.tasks.middleware import wrap
from django_pgqueue.tasks.perform import (
    Performed,
    Prepared,
    after_error,
    after_return,
    awaitable,
    context_of,
)


def unasked() -> BaseException | None:
    """Return None: nobody has cancelled the task, so it has done so itself."""
    return None


async def perform_async(
    job: Claimed,
    prepared: Prepared,
    settings: Settings,
    *,
    installation: str,
    clock: Callable[[], float] = time.monotonic,
    control: JobControl | None = None,
    why_cancelled: Callable[[], BaseException | None] = unasked,
) -> Performed:
    """
    Await the task, and say what becomes of the job.

    Catches everything, CancelledError and SystemExit too: a task must not end its
    event loop by raising.

    Args:
        job: As it was claimed.
        prepared: Its task, declared with async def, and its arguments.
        settings: For the limit of a result.
        installation: The uuid that begins its idempotency key.
        clock: Monotonic seconds.
        control: What its context works on; by default on nothing but itself.
        why_cancelled: What a CancelledError that leaves the task stands for: the
            timeout, say. None: for itself, as any other failure.
    """
    control = Inline() if control is None else control
    task, options = prepared.task, prepared.options
    context: Any = None
    if task.options.takes_context or options.middleware:
        # Not for nothing: it costs more than anything else in here.
        context = context_of(job, prepared, installation, control)
    call: Callable[[], Any] = functools.partial(
        task.run, context, prepared.args, prepared.kwargs
    )
    if options.middleware:
        call = wrap(options.middleware, context, call)
    started = clock()
    try:
        if options.ack_policy == "first":
            await asyncio.to_thread(control.say, None)
            started = clock()
        value = await awaitable(call())
    except BaseException as error:
        ran_seconds = clock() - started
        meant = why_cancelled() if isinstance(error, asyncio.CancelledError) else None
        if meant is not None:
            meant.__cause__ = error
        else:
            meant = error
            _drop_our_frames(error)
        return after_error(job, prepared, control, meant, ran_seconds)
    return after_return(job, prepared, settings, control, value, clock() - started)


def _drop_our_frames(error: BaseException) -> None:
    """The first frames are ours and say nothing about the task."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error.__traceback__ = trace
