"""Coroutine: one async job that runs, and what it has started in the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from contextvars import Context, ContextVar
from datetime import timedelta
from typing import Any, Literal

from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.worker.lease.leases import Held
from django_pgqueue.worker.run.interruption import Interrupted
from django_pgqueue.worker.run.sync_calls import (
    ByCaller,
    SyncCalls,
    SyncThreads,
    closed,
)

logger = logging.getLogger("django_pgqueue.worker")

# asyncio tasks that a job leaves behind are cancelled, and waited for this long.
LEFT_SECONDS = 5.0

# Whose code is running; copied to every asyncio task that a job starts.
current: ContextVar[Coroutine | None] = ContextVar("coroutine", default=None)

Stop = Literal["timeout", "cancel", "interrupt"]

# Of jobs that made no sync call and are over.
CLOSED = closed()


class Coroutine:
    """An async job that has a slot. Used in the loop; hard_at also by its watch."""

    __slots__ = (
        "_threads",
        "calls",
        "hard_at",
        "held",
        "is_over",
        "is_performing",
        "job",
        "ran_seconds",
        "slot",
        "started",
        "stop",
        "taken_at",
        "task",
        "timeout",
    )

    def __init__(
        self, held: Held, slot: int, threads: SyncThreads, taken_at: float
    ) -> None:
        self.job = held.job
        self.held = held
        self.slot = slot
        self.taken_at = taken_at  # Monotonic; when it got its slot.
        self._threads = threads
        self.calls: SyncCalls | None = None  # Until there is one.
        self.task: asyncio.Task[None] | None = None
        # What it has started besides, and is not done.
        self.started: set[asyncio.Task[Any]] = set()
        self.timeout: timedelta | None = None
        self.hard_at: float | None = None  # Monotonic.
        self.is_performing = False
        self.is_over = False
        self.ran_seconds: float | None = None  # None: its task was not called.
        self.stop: Stop | None = None

    def sync_calls(self) -> SyncCalls:
        """Return what runs the sync calls of this job."""
        if self.calls is None:
            self.calls = self._threads.lend()
        return self.calls

    async def end_calls(self) -> None:
        """Wait for sync calls that go on, and allow no more."""
        if self.calls is None:
            self.calls = CLOSED
        else:
            await self.calls.finish()

    def forget(self) -> None:
        """
        Let go of the asyncio task, when it is about to end.

        Its context refers to this: nothing of a job may be left to the garbage
        collector, which would walk over everything else to find it.
        """
        self.task = None

    def owns(self, task: asyncio.Task[Any]) -> bool:
        """Whether the job runs in this asyncio task, or has started it."""
        return task is self.task or task in self.started

    def begin(self) -> None:
        """Let interrupts through from now on, also one that was asked for before."""
        assert self.task is not None
        self.is_performing = True
        if self.stop is not None:
            self.task.cancel()

    def interrupt(self, why: Stop) -> None:
        """Raise CancelledError where the task waits; it means what *why* says."""
        self.stop = why
        if self.is_performing:
            assert self.task is not None
            self.task.cancel()

    def why_cancelled(self) -> BaseException | None:
        """Return what a CancelledError that leaves the task stands for."""
        if self.stop == "timeout":
            return TaskTimeout()
        return Interrupted() if self.stop == "interrupt" else None

    async def end_started(self) -> None:
        """Cancel what the job has started and not awaited; wait a while for it."""
        if not self.started:
            return
        logger.warning(
            "left       job=%d task=%s: it ended before %d asyncio tasks that it had "
            "started; they are cancelled: %s",
            self.job.id,
            self.job.task,
            len(self.started),
            _names(self.started),
        )
        until = time.monotonic() + LEFT_SECONDS
        while self.started and time.monotonic() < until:
            for task in list(self.started):
                task.cancel()
            await asyncio.wait(list(self.started), timeout=until - time.monotonic())
        if self.started:
            logger.error(
                "left       job=%d task=%s: %d asyncio tasks do not end: %s",
                self.job.id,
                self.job.task,
                len(self.started),
                _names(self.started),
            )

    async def forget_cancels(self) -> None:
        """Swallow requests to cancel that came too late, or from the task itself."""
        assert self.task is not None
        if not self.task.cancelling():
            return
        while self.task.cancelling():
            self.task.uncancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            while self.task.cancelling():
                self.task.uncancel()


def calls_of_current() -> SyncCalls:
    """Return the sync calls of the job whose code is running."""
    owner = current.get()
    return CLOSED if owner is None else owner.sync_calls()


BY_CALLER = ByCaller(calls_of_current)


def start_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
    """Be the loop's task factory: note which job starts which asyncio task."""
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
    context: Context | None = options.get("context")
    # One that is started in a context of its own belongs to no job.
    owner = current.get() if context is None else context.get(current)
    if owner is not None and not task.done():
        owner.started.add(task)
        task.add_done_callback(owner.started.discard)
    return task


def _names(tasks: set[asyncio.Task[Any]]) -> str:
    return ", ".join(sorted(_name(task) for task in tasks)[:5])


def _name(task: asyncio.Task[Any]) -> str:
    coro = task.get_coro()
    return getattr(coro, "__qualname__", None) or repr(coro)
