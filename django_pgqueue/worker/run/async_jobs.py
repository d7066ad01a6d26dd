"""Async jobs: what the event loop knows of each, and the thread that watches it."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from django.core.exceptions import SynchronousOnlyOperation

from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.perform import timeout_message
from django_pgqueue.worker.lease.leases import Held
from django_pgqueue.worker.run.control import Control, Interrupted
from django_pgqueue.worker.run.sync_calls import (
    ByCaller,
    SyncCalls,
    SyncThreads,
    closed,
)
from django_pgqueue.worker.run.watchdog import HARD_GRACE_SECONDS

# asyncio tasks that a job leaves behind are cancelled, and waited for this long.
LEFT_SECONDS = 5.0

# A loop that does not answer for longer than this is blocked.
BLOCKED_SECONDS = 1.0

ASK_SECONDS = 0.25

# Frames of a stack that are shown: the innermost.
FRAMES = 12

logger = logging.getLogger("django_pgqueue.worker")

# Whose code is running; copied to every asyncio task that a job starts.
current: ContextVar[Coroutine | None] = ContextVar("coroutine", default=None)

Stop = Literal["timeout", "cancel", "interrupt"]

# Of jobs that made no sync call and are over.
CLOSED = closed()


@dataclass(slots=True, eq=False)
class Coroutine:
    """An async job that has a slot. Used in the loop; hard_at also by its watch."""

    job: Claimed
    held: Held
    slot: int
    threads: SyncThreads
    taken_at: float  # Monotonic; when it got its slot.
    calls: SyncCalls | None = None  # Until there is one.
    task: asyncio.Task[None] | None = None
    # What it has started besides, and is not done.
    started: set[asyncio.Task[Any]] = field(default_factory=set)
    timeout: timedelta | None = None
    hard_at: float | None = None  # Monotonic.
    is_performing: bool = False
    is_over: bool = False
    ran_seconds: float | None = None  # None: its task was not called.
    stop: Stop | None = None

    def sync_calls(self) -> SyncCalls:
        """Return what runs the sync calls of this job."""
        if self.calls is None:
            self.calls = SyncCalls(self.threads)
        return self.calls

    async def end_calls(self) -> None:
        """Wait for sync calls that go on, and allow no more."""
        if self.calls is None:
            self.calls = CLOSED
        else:
            await self.calls.finish()

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


class LoopControl(Control):
    """The control of an async job: what waits is refused in the loop itself."""

    __slots__ = ()

    @property
    def has_reported(self) -> bool:
        """Whether the task has said something about its progress, or emitted."""
        return self._report is not None or self._values is not None

    def extend(self, duration: timedelta | None) -> None:
        """As Control.extend(), in a thread."""
        _refuse_in_loop("extend", "aextend")
        super().extend(duration)

    def say(self, error: BaseException | None) -> None:
        """As Control.say(), in a thread."""
        _refuse_in_loop("ack, reject or retry", "aack, areject or aretry")
        super().say(error)


def _refuse_in_loop(sync: str, twin: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise SynchronousOnlyOperation(
        f"{sync} of a job's context waits for the database and would stop every "
        f"coroutine of the process: await {twin} instead."
    )


class LoopWatch(threading.Thread):
    """Asks the loop four times a second while coroutines run; sleeps otherwise."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutines: Callable[[], Iterable[Coroutine]],
        on_hard: Callable[[Claimed, TaskTimeout], None],
    ) -> None:
        super().__init__(name="pgqueue-loop-watch", daemon=True)
        self._loop = loop
        self._coroutines = coroutines
        self._on_hard = on_hard
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._loop_ident: int | None = None
        # Monotonic time of a probe that is not answered yet.
        self._probed_at: float | None = None
        self._is_logged = False

    def look(self) -> None:
        """Be awake: something runs. Called in the loop."""
        self._loop_ident = threading.get_ident()
        self._wanted.set()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._wanted.set()

    def run(self) -> None:
        """Ask and look until stopped."""
        while not self._stopping.is_set():
            self._wanted.wait()
            coroutines = list(self._coroutines())
            if not coroutines and self._probed_at is None:
                self._wanted.clear()
                coroutines = list(self._coroutines())
                if not coroutines:
                    continue
                # They came in between, and look() perhaps before the line above.
                self._wanted.set()
            try:
                self._look_once(coroutines)
            except Exception:
                logger.exception("failed     loop=loop-watch")
            self._stopping.wait(ASK_SECONDS)

    def _look_once(self, coroutines: list[Coroutine]) -> None:
        now = time.monotonic()
        probed_at = self._probed_at
        if probed_at is None:
            self._probed_at = now
            self._is_logged = False
            self._loop.call_soon_threadsafe(self._answer)
        blocked_seconds = 0.0 if probed_at is None else now - probed_at
        is_blocked = blocked_seconds > BLOCKED_SECONDS
        if is_blocked and not self._is_logged:
            self._is_logged = True
            self._tell(coroutines, blocked_seconds)
        for coroutine in coroutines:
            if coroutine.hard_at is not None and now >= coroutine.hard_at:
                coroutine.hard_at = None
                blamed = self._blocker(coroutines) if is_blocked else None
                self._expire(coroutine, blamed or coroutine, blocked_seconds)

    def _answer(self) -> None:
        self._probed_at = None

    def _blocker(self, coroutines: list[Coroutine]) -> Coroutine | None:
        task = asyncio.current_task(self._loop)
        for coroutine in coroutines:
            if task is not None and coroutine.owns(task):
                return coroutine
        return None

    def _tell(self, coroutines: list[Coroutine], seconds: float) -> None:
        blocker = self._blocker(coroutines)
        logger.warning(
            "blocked    job=%s task=%s: sync code keeps the event loop busy for %.1f s "
            "and %d coroutines wait; call it with asyncio.to_thread() or "
            "sync_to_async()\n%s",
            "unknown" if blocker is None else blocker.job.id,
            "unknown" if blocker is None else blocker.job.task,
            seconds,
            len(coroutines),
            self._stack(),
        )

    def _stack(self) -> str:
        frame: Any = sys._current_frames().get(self._loop_ident or 0)
        if frame is None:
            return "  (its stack is unknown)"
        return "".join(traceback.format_stack(frame)[-FRAMES:]).rstrip()

    def _expire(
        self, late: Coroutine, blamed: Coroutine, blocked_seconds: float
    ) -> None:
        if blamed is late:
            message = (
                f"{timeout_message(late.job, late.timeout)} It did not react within "
                f"{HARD_GRACE_SECONDS:.0f} s more, so its process was replaced."
            )
        else:
            # The late one could not run: it is handed back, as its neighbours are.
            message = (
                f"{blamed.job.task} kept the event loop busy for "
                f"{blocked_seconds:.0f} s, so that other jobs could not keep their "
                f"timeouts, and its process was replaced."
            )
        self._on_hard(blamed.job, TaskTimeout(message))
