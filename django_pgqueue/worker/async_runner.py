"""
Async runner: one async job in the event loop, from its slot to its settle.

What _take(), _perform() and _call() of the executor do in a thread, done here without
ever blocking the loop: whatever waits for a lock, a thread or the database is awaited.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation

from django_pgqueue import signals, telemetry
from django_pgqueue.conf import Settings
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.outcome import Cancelled
from django_pgqueue.tasks.payload import TAG
from django_pgqueue.tasks.perform import Performed, Prepared, prepare, refuse
from django_pgqueue.tasks.perform_async import perform_async
from django_pgqueue.worker.control import Control, Hands
from django_pgqueue.worker.coroutine import Coroutine
from django_pgqueue.worker.gate import Gate
from django_pgqueue.worker.interruption import Interrupted, interrupted
from django_pgqueue.worker.isolation import Isolation
from django_pgqueue.worker.settler import Settlement
from django_pgqueue.worker.slots import Slots
from django_pgqueue.worker.watchdog import HARD_GRACE_SECONDS


class AsyncRunner:
    """Runs jobs; used in the loop alone, except for Commits."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        settings: Settings,
        slots: Slots,
        gate: Gate,
        hands: Hands,
        isolation: Isolation,
        installation: str,
        grace_seconds: float,
        on_alone: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._slots = slots
        self._gate = gate
        self._hands = hands
        self._isolation = isolation
        self._installation = installation
        self._grace_seconds = grace_seconds
        self._on_alone = on_alone
        self._commits = Commits(loop)
        # Of its own: waiting for the gate must not keep to_thread() from running.
        self._alone_thread = ThreadPoolExecutor(1, "pgqueue-alone")

    def give_back(self, job: Claimed) -> None:
        """Return a job to its queue, as if never claimed."""
        self._hands.settler.put(Settlement(job, None))

    async def run(self, coroutine: Coroutine) -> float | None:
        """Run a job; return how many seconds its task ran, or None: it did not."""
        job = coroutine.job
        held = self._hands.leases.get(job)
        if held is None or time.monotonic() >= held.valid_until:
            # Its lease ran out before it could start: the fence of the release knows.
            self.give_back(job)
            return None
        refused = refuse(job, self._settings)
        if held.is_cancelled:
            # It was asked to stop after the claim, while it waited here.
            refused = Performed(Cancelled())
        if refused is not None:
            self._hands.settler.put(Settlement(job, refused))
            return None
        if job.runs_alone:
            return await self._run_alone(coroutine)
        if not self._gate.try_enter():
            self.give_back(job)
            return None
        try:
            return await self._run_prepared(coroutine)
        finally:
            self._isolation.look(job.id, job.task)
            self._gate.leave()

    async def _run_alone(self, coroutine: Coroutine) -> float | None:
        self._on_alone()
        alone = self._gate.alone()

        def enter() -> None:
            alone.__enter__()
            self._hands.settler.wait_until_idle(self._settings.lease_seconds)

        await self._loop.run_in_executor(self._alone_thread, enter)
        try:
            return await self._run_prepared(coroutine)
        finally:
            self._isolation.look(coroutine.job.id, coroutine.job.task)
            alone.__exit__(None, None, None)

    async def _run_prepared(self, coroutine: Coroutine) -> float | None:
        job = coroutine.job
        # Before the arguments are read: they too can end a process.
        self._slots.enter(coroutine.slot, job.id, job.delivery)
        coroutine.calls.enter()
        try:
            prepared = await self._prepare(job)
            if isinstance(prepared, Performed):
                await self._commits.wait_for(
                    lambda done: self._settle(Settlement(job, prepared, done))
                )
                return None
            held = self._hands.leases.get(job)
            if held is None or not prepared.task.options.is_async:
                # Lost meanwhile; or declared meanwhile, and a thread's.
                self.give_back(job)
                return None
            control = LoopControl(self._hands, held, prepared)
            await self._tell_started(job, prepared)
            performed = await self._call(coroutine, prepared, control)
        finally:
            # Nothing of it may run on when another worker runs its next attempt.
            await coroutine.calls.finish()
        # A hard timeout covers everything up to here.
        coroutine.hard_at = None
        await self._finish(job, prepared, control, performed)
        return performed.ran_seconds

    async def _prepare(self, job: Claimed) -> Prepared | Performed:
        if TAG in job.args or TAG in job.kwargs:
            # There may be model instances in it, which are fetched.
            return await sync_to_async(prepare)(job, self._settings)
        return prepare(job, self._settings)

    async def _tell_started(self, job: Claimed, prepared: Prepared) -> None:
        # A receiver may wait for whatever it likes, so it is called in a thread.
        if signals.job_started.has_listeners(prepared.task):
            await sync_to_async(telemetry.started)(prepared.task, job)
        else:
            telemetry.started(prepared.task, job)

    async def _call(
        self, coroutine: Coroutine, prepared: Prepared, control: LoopControl
    ) -> Performed:
        """Call the task under its timeout; nothing that it started is left."""
        held = self._hands.leases.get(coroutine.job)
        if held is not None:
            held.when_cancelled(lambda: self._interrupt_soon(coroutine))
        timer = None
        coroutine.timeout = timeout = prepared.options.timeout
        if timeout is not None:
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
        await coroutine.end_started()
        if isinstance(performed.error, Interrupted) and not control.has_said:
            return interrupted(
                coroutine.job,
                self._grace_seconds,
                performed.ran_seconds,
                performed.error.__cause__,
            )
        return performed

    def _interrupt_soon(self, coroutine: Coroutine) -> None:
        """Called in the heartbeat's thread: somebody has cancelled the job."""
        self._loop.call_soon_threadsafe(coroutine.interrupt, "cancel")

    async def _finish(
        self,
        job: Claimed,
        prepared: Prepared,
        control: LoopControl,
        performed: Performed,
    ) -> None:
        async def finish(done: Commit | None) -> bool:
            if not control.has_reported:
                return control.finish(performed, done)
            # The last report may have to wait for one that is being written.
            return await asyncio.to_thread(control.finish, performed, done)

        if prepared.options.settle == "immediate" or job.runs_alone:
            await self._commits.wait_for(finish)
        else:
            await finish(None)

    async def _settle(self, settlement: Settlement) -> bool:
        self._hands.settler.put(settlement)
        return True


class LoopControl(Control):
    """The control of an async job: what waits is refused in the loop itself."""

    __slots__ = ()

    @property
    def has_reported(self) -> bool:
        """Whether the task has said something about its progress."""
        return self._report is not None

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


class Commit:
    """What a settlement releases, in the place of a thread's lock."""

    __slots__ = ("_commits", "future")

    def __init__(self, commits: Commits, future: asyncio.Future[None]) -> None:
        self._commits = commits
        self.future = future

    def release(self) -> None:
        """Let the job go on. Called in the settler's thread."""
        self._commits.note(self.future)


class Commits:
    """Lets jobs wait for their settles; one wake of the loop for those of one write."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._committed: deque[asyncio.Future[None]] = deque()
        self._is_waking = False

    async def wait_for(self, settle: Callable[[Commit], Awaitable[bool]]) -> None:
        """Await *settle*, with what its settlement releases, and then its commit."""
        commit = Commit(self, self._loop.create_future())
        if await settle(commit):
            await commit.future

    def note(self, future: asyncio.Future[None]) -> None:
        """Note that a settle is committed. Called in the settler's thread."""
        self._committed.append(future)
        if not self._is_waking:
            self._is_waking = True
            self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        # First: what is noted from here on wakes the loop again.
        self._is_waking = False
        while self._committed:
            future = self._committed.popleft()
            if not future.done():
                future.set_result(None)
