"""
Async runner: one async job in the event loop, from its slot to its settle.

What _take(), _perform() and _call() of the executor do in a thread, done here without
ever blocking the loop: whatever waits for a lock, a thread or the database is awaited.

On the way of a job that needs none of that nothing is awaited but its own code.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from datetime import timedelta
from typing import Any, Literal

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation

from django_pgqueue import signals, telemetry
from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.gathered import Collected
from django_pgqueue.tasks.outcome import Performed
from django_pgqueue.tasks.payload import TAG
from django_pgqueue.tasks.perform import begin_run, perform_async
from django_pgqueue.tasks.prepare import Prepared, prepare
from django_pgqueue.worker.lease.leases import Held, Slots
from django_pgqueue.worker.run.call_collector import Run
from django_pgqueue.worker.run.control import (
    Control,
    Interrupted,
    JobServices,
    RunControl,
    interrupted,
)
from django_pgqueue.worker.run.executor import salvage
from django_pgqueue.worker.run.sync_calls import (
    ByCaller,
    SyncCalls,
    SyncThreads,
    closed,
)
from django_pgqueue.worker.run.watchdog import HARD_GRACE_SECONDS
from django_pgqueue.worker.settle.settler import Settlement

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


logger = logging.getLogger("django_pgqueue.worker")


class AsyncRunner:
    """Runs jobs; used in the loop alone, except for Commits."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        settings: Settings,
        slots: Slots,
        services: JobServices,
        installation: str,
        grace_seconds: float,
        on_suspect: Callable[[], None] | None,
        on_turn: Callable[[], None],
        on_end: Callable[[Coroutine], None],
    ) -> None:
        """
        Make it.

        Args:
            loop: Where jobs run.
            settings: For their arguments and results.
            slots: Where running jobs are marked.
            services: What the controls of jobs work with.
            installation: The uuid that begins idempotency keys.
            grace_seconds: Of the worker's stop, for the log.
            on_suspect: Called for a job that is to run alone, which is handed back;
                None: it runs here.
            on_turn: Called when an outcome was handed over: somebody must wake the
                settler at the end of this turn of the loop.
            on_end: Called in the loop when a job needs its slot no longer.
        """
        self._loop = loop
        self._settings = settings
        self._slots = slots
        self._services = services
        self._installation = installation
        self._grace_seconds = grace_seconds
        self._on_suspect = on_suspect
        self._on_turn = on_turn
        self._on_end = on_end
        self._commits = Commits(loop)

    def give_back(self, job: Claimed) -> None:
        """Return a job to its queue, as if never claimed."""
        self._put(Settlement(job, None))

    def admit(
        self, job: Claimed, slot: int, threads: SyncThreads, now: float
    ) -> Coroutine | None:
        """
        Return the coroutine of a job that may run; None: it is settled, or returned.

        Args:
            job: As it was claimed.
            slot: A free one, which it takes.
            threads: Run its sync calls.
            now: Monotonic.
        """
        held = self._services.leases.admit(job, now, self._settings)
        if not isinstance(held, Held):
            self._put(Settlement(job, held))
            return None
        if job.runs_alone and self._on_suspect is not None:
            self.give_back(job)
            self._on_suspect()
            return None
        return Coroutine(held, slot, threads, now)

    async def run(self, coroutine: Coroutine) -> None:
        """Run a job that was admitted; on_end() is called for it, then or later."""
        current.set(coroutine)
        is_settling = False
        try:
            is_settling = await self._run(coroutine)
        except BaseException as error:
            # Everything a job can do is caught in there; this is a bug of ours. The
            # loop must live on, and the attempt is over.
            logger.exception("failed     loop=coroutines job=%d", coroutine.job.id)
            self._salvage(coroutine.job, error)
        coroutine.forget()
        if not is_settling:
            self._end(coroutine)

    def _salvage(self, job: Claimed, error: BaseException) -> None:
        """Settle a job whose outcome a bug of ours has kept back."""
        try:
            self._hand_back_near(job)
            salvage(
                job,
                error,
                leases=self._services.leases,
                settler=self._services.settler,
                settings=self._settings,
            )
        except BaseException:
            logger.exception("failed     loop=coroutines job=%d stays leased", job.id)

    def _end(self, coroutine: Coroutine) -> None:
        """Leave the slot."""
        if coroutine.is_over:
            return
        coroutine.is_over = True
        self._slots.leave(coroutine.slot)
        self._on_end(coroutine)

    def _put(self, settlement: Settlement) -> None:
        """Hand an outcome to the settler, which is told at the end of this turn."""
        self._services.settler.put_soon(settlement)
        self._on_turn()

    async def _run(self, coroutine: Coroutine) -> bool:
        """Run the job; return whether its slot waits for its settle."""
        job = coroutine.job
        # Before the arguments are read: they too can end a process.
        self._slots.enter(coroutine.slot, job.id, job.delivery)
        try:
            if TAG in job.args or TAG in job.kwargs:
                # There may be model instances in it, which are fetched.
                prepared = await sync_to_async(prepare)(job, self._settings)
            else:
                prepared = prepare(job, self._settings)
            if isinstance(prepared, Performed):
                self._hand_back_near(job)
                done = Commit(self._commits, coroutine, self._end)
                self._put(Settlement(job, prepared, done))
                return True
            is_held = self._services.leases.get(job) is not None
            if not is_held or not prepared.task.options.is_async:
                # Lost meanwhile; or declared meanwhile, and a thread's.
                self._hand_back_near(job)
                self.give_back(job)
                return False
            # A receiver may wait for whatever it likes, so it is called in a thread.
            started = signals.job_started
            if started.receivers and started.has_listeners(prepared.task):
                await sync_to_async(telemetry.started)(prepared.task, job)
            else:
                telemetry.started(prepared.task, job)
            run = collected = None
            control = LoopControl(self._services, coroutine.held, prepared)
            if prepared.options.accumulate is not None:
                # It asks the database, and calls may hold model instances.
                gathered = sync_to_async(self._collected)
                run, collected = await gathered(coroutine.held, prepared)
                prepared = collected.prepared
                control = LoopRunControl(self._services, run)
            performed = await self._call(coroutine, prepared, control)
        finally:
            # Nothing of it may run on when another worker runs its next attempt.
            await coroutine.end_calls()
        # A hard timeout covers everything up to here.
        coroutine.hard_at = None
        coroutine.ran_seconds = performed.ran_seconds
        if run is not None and collected is not None:
            performed, run.ends = collected.shared(performed)
            performed = run.settle_others(performed)
        if control.has_reported:
            # What it has said last may have to wait for what is being written.
            settlement = await asyncio.to_thread(control.close, performed)
        else:
            settlement = control.close(performed)
        if settlement is None:
            return False
        waits = prepared.options.settle == "immediate"
        if waits:
            settlement.done = Commit(self._commits, coroutine, self._end)
        self._put(settlement)
        return waits

    async def _call(
        self, coroutine: Coroutine, prepared: Prepared, control: LoopControl
    ) -> Performed:
        """Call the task under its timeout; nothing that it started is left."""
        control.when_cancelled(lambda: self._interrupt_soon(coroutine))
        timer = None
        timeout = prepared.options.timeout
        if timeout is not None:
            coroutine.timeout = timeout
            seconds = timeout.total_seconds()
            coroutine.hard_at = time.monotonic() + seconds + HARD_GRACE_SECONDS
            timer = self._loop.call_later(seconds, coroutine.interrupt, "timeout")
        coroutine.begin()
        performed = await perform_async(
            coroutine.job,
            prepared,
            self._settings,
            installation=self._installation,
            control=control,
            why_cancelled=coroutine.why_cancelled,
        )
        coroutine.is_performing = False
        if timer is not None:
            timer.cancel()
        await coroutine.forget_cancels()
        if coroutine.started:
            await coroutine.end_started()
        if isinstance(performed.error, Interrupted) and not control.has_word:
            return interrupted(
                coroutine.job,
                self._grace_seconds,
                performed.ran_seconds,
                performed.error.__cause__,
            )
        return performed

    def _collected(self, held: Held, prepared: Prepared) -> tuple[Run, Collected]:
        """Return a run that this job leads, with its calls read. In a thread."""
        run = self._services.collector.collect(held, prepared)
        return run, begin_run(held.job, prepared, run.other_jobs, self._settings)

    def _hand_back_near(self, job: Claimed) -> None:
        if job.accumulate_key is not None:
            self._services.collector.hand_back(job)

    def _interrupt_soon(self, coroutine: Coroutine) -> None:
        """Called in the heartbeat's thread: somebody has cancelled the job."""
        self._loop.call_soon_threadsafe(coroutine.interrupt, "cancel")


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


class LoopRunControl(LoopControl, RunControl):
    """The control of a run of many async calls."""

    __slots__ = ()

    def __init__(self, services: JobServices, run: Run) -> None:
        RunControl.__init__(self, services, run)


def _refuse_in_loop(sync: str, twin: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise SynchronousOnlyOperation(
        f"{sync} of a job's context waits for the database and would stop every "
        f"coroutine of the process: await {twin} instead."
    )


class Commit:
    """What a settlement releases, in the place of a thread's lock."""

    __slots__ = ("_commits", "call", "coroutine")

    def __init__(
        self,
        commits: Commits,
        coroutine: Coroutine,
        call: Callable[[Coroutine], None],
    ) -> None:
        self._commits = commits
        self.coroutine = coroutine
        self.call = call

    def release(self) -> None:
        """Let the slot go. Called in the settler's thread."""
        self._commits.note(self)


class Commits:
    """Tells the loop what is settled; one wake of it for those of one write."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._committed: deque[Commit] = deque()
        self._is_waking = False

    def note(self, commit: Commit) -> None:
        """Note that a settle is committed. Called in the settler's thread."""
        self._committed.append(commit)
        if not self._is_waking:
            self._is_waking = True
            self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        # First: what is noted from here on wakes the loop again.
        self._is_waking = False
        while self._committed:
            commit = self._committed.popleft()
            commit.call(commit.coroutine)
