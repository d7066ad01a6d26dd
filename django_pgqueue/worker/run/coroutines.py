"""
Coroutines: the event loop that runs async tasks.

The eighth hop of an async job's life, beside the executor's threads. One loop in a
thread of its own, started when the first async job comes. A job has a slot for as long
as it runs and, with settle="immediate", until its ack is committed.

Nothing here blocks the loop: whatever waits for a lock, a thread or the database is
awaited, and a job that needs none of that awaits nothing but its own code.

A *turn* is one round of the event loop. What can be done once for all jobs that end in
the same turn is done at its end: the settler is told, what they left behind is looked
for, others start in their slots, the claimer hears of capacity.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async

from django_pgqueue import signals, telemetry
from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.queues.claim import CLAIM_LIMIT_MAX, Claimed
from django_pgqueue.tasks.gathered import Collected
from django_pgqueue.tasks.outcome import Performed
from django_pgqueue.tasks.payload import TAG
from django_pgqueue.tasks.perform import begin_run, perform_async
from django_pgqueue.tasks.prepare import Prepared, prepare
from django_pgqueue.worker.claim.capacity import HORIZON_SECONDS, Prefetch
from django_pgqueue.worker.lease.leases import Held
from django_pgqueue.worker.run.async_jobs import (
    BY_CALLER,
    Coroutine,
    LoopControl,
    LoopWatch,
    current,
    start_task,
)
from django_pgqueue.worker.run.call_collector import Run
from django_pgqueue.worker.run.control import Interrupted, JobServices, interrupted
from django_pgqueue.worker.run.sync_calls import SyncThreads
from django_pgqueue.worker.run.watchdog import HARD_GRACE_SECONDS
from django_pgqueue.worker.settle.settler import Settlement

logger = logging.getLogger("django_pgqueue.worker")

# Threads of asyncio.to_thread().
ASIDE_THREADS = 32

# How often it is looked whether jobs that were claimed ahead wait behind long ones.
SPOT_SECONDS = HORIZON_SECONDS


class Coroutines:
    """Runs what the dispatcher puts, up to a number of jobs at once."""

    def __init__(
        self,
        *,
        count: int,
        first_slot: int,
        sync_threads: int,
        services: JobServices,
        grace_seconds: float,
        on_hard_timeout: Callable[[Claimed, TaskTimeout], None],
    ) -> None:
        self.count = count
        self._services = services
        # Of the worker's stop, for the log.
        self._grace_seconds = grace_seconds
        # No thread runs until the first job comes.
        self._loop = asyncio.new_event_loop()
        self._loop.set_task_factory(start_task)
        self._loop.set_default_executor(
            ThreadPoolExecutor(ASIDE_THREADS, "pgqueue-aside")
        )
        self._thread = threading.Thread(
            target=self._serve, name="pgqueue-loop", daemon=True
        )
        self._watch = LoopWatch(self._loop, self.running, on_hard_timeout)
        self._sync_threads = SyncThreads(sync_threads)
        # Of those whose settle is committed; and whether the loop will look at them.
        self._committed: deque[Coroutine] = deque()
        self._is_told = False
        # Of each job a copy: nothing of another job's is in it.
        self._context = BY_CALLER.context()
        self._stopping = False
        self._is_closing = False
        # Jobs put so far, counted by the claimer's thread, and jobs that ended, by the
        # loop's. Their difference needs no lock.
        self._put = 0
        self._ended = 0
        self._has_ended = threading.Event()
        self._prefetch = Prefetch(count)
        # From here on the loop's own; others may copy.
        self._waiting: deque[Claimed] = deque()
        self._running: dict[int, Coroutine] = {}  # By slot.
        self._free = list(range(first_slot + count - 1, first_slot - 1, -1))
        # Of this turn: jobs that are gone, those of them that ran, and for how long
        # they had their slots.
        self._is_turning = False
        self._gone = 0
        self._ran = 0
        self._slot_seconds = 0.0
        # Whether _spot() is due, and when a job was last taken as it was called before.
        self._is_spotting = False
        self._spotted_at = 0.0

    # Called in other threads ----------------------------------------------------------

    def put(self, jobs: list[Claimed]) -> None:
        """Take claimed jobs, in run order; the claimer's thread alone may call it."""
        if not jobs:
            return
        if not self._thread.ident:
            self._thread.start()
            self._watch.start()
        self._put += len(jobs)
        self._call(self._begin, jobs)

    def capacity(self) -> int:
        """Return how many more jobs could start within the horizon; 0: none."""
        held = self._put - self._ended
        is_flowing = held < self.count or not self._prefetch.is_stuck()
        ahead = self._prefetch.ahead() if is_flowing else 0
        capacity = self.count + ahead - held
        # Not one by one, as in the executor.
        if held > self.count and 2 * capacity < ahead:
            return 0
        return max(0, min(capacity, CLAIM_LIMIT_MAX))

    @property
    def is_idle(self) -> bool:
        """Whether no job runs and none waits."""
        return self._put == self._ended

    def running(self) -> list[Coroutine]:
        """Return the coroutines that have a slot at this moment."""
        return list(self._running.values())

    def stop(self) -> None:
        """Hand back what has not started; what runs goes on."""
        self._stopping = True
        self._call(self._hand_back)

    def interrupt(self) -> None:
        """Interrupt all jobs: the worker's grace is over."""
        self._call(self._interrupt)

    def join(self, until: float) -> bool:
        """Wait for all jobs until the monotonic time *until*; False: some run."""
        while not self.is_idle:
            self._has_ended.clear()
            seconds = until - time.monotonic()
            if self.is_idle or seconds <= 0:
                break
            self._has_ended.wait(seconds)
        return self.is_idle

    def close(self) -> None:
        """End the loop and its threads, when no job runs any more. For tests."""
        self._is_closing = True
        if self._thread.ident:
            self._watch.stop()
            self._call(self._loop.stop)
            self._thread.join()
            self._watch.join()
        self._sync_threads.close()
        self._loop.close()

    def _call(self, function: Callable[..., Any], *args: Any) -> None:
        # RuntimeError: the loop is closed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    # The loop's thread ----------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._is_closing:
            try:
                self._loop.run_forever()
            except BaseException:
                # SystemExit and KeyboardInterrupt, from an asyncio task or a callback
                # that a job has started: asyncio lets these two through.
                logger.exception("raised     loop=coroutines: it goes on")

    def _begin(self, jobs: list[Claimed]) -> None:
        if self._waiting and jobs[0].priority > self._waiting[-1].priority:
            # Stable: jobs of equal priority stay in the order of their claims.
            waiting = sorted([*self._waiting, *jobs], key=lambda job: -job.priority)
            self._waiting = deque(waiting)
        else:
            self._waiting.extend(jobs)
        self._fill()

    def _fill(self) -> None:
        if self._stopping:
            self._hand_back()
            return
        waiting, free = self._waiting, self._free
        if not waiting:
            return
        was_idle = not self._running
        now = time.monotonic()
        while waiting and free:
            job = waiting.popleft()
            self._prefetch.taken_at = now
            held = self._services.admit(job, now)
            if not isinstance(held, Held):
                self._put_soon(Settlement(job, held))
                self._note_gone()
                continue
            if job.accumulate_key is not None:
                for _ in range(self._services.collector.take_near(job, waiting)):
                    self._note_gone()
            slot = free.pop()
            coroutine = Coroutine(job, held, slot, self._sync_threads, now)
            self._running[slot] = coroutine
            coroutine.task = asyncio.Task(
                self._run(coroutine),
                loop=self._loop,
                name=f"job {job.id}",
                context=self._context.copy(),
            )
        if was_idle and self._running:
            # Only now: the watch sleeps again if it sees none. None has begun so far.
            self._watch.look()
        if waiting and not self._is_spotting:
            self._spot_later()

    def _spot_later(self) -> None:
        self._is_spotting = True
        self._spotted_at = self._prefetch.taken_at
        self._loop.call_later(SPOT_SECONDS, self._spot, context=self._context)

    def _spot(self) -> None:
        """Hand back what waits behind jobs that take longer than was expected."""
        self._is_spotting = False
        if not self._waiting:
            return
        # Not by the clock alone: a turn of a busy loop may take longer than that, and
        # those that end in this one free their slots only at its end.
        if self._prefetch.taken_at == self._spotted_at and not self._is_turning:
            self._hand_back()
        else:
            self._spot_later()

    def _hand_back(self) -> None:
        while self._waiting:
            self._put_soon(Settlement(self._waiting.popleft(), None))
            self._note_gone()

    def _interrupt(self) -> None:
        for coroutine in self._running.values():
            coroutine.interrupt("interrupt")

    def _end(self, coroutine: Coroutine) -> None:
        """Free the slot of a job; another one starts there at the end of the turn."""
        if coroutine.is_over:
            return
        coroutine.is_over = True
        self._services.slots.leave(coroutine.slot)
        del self._running[coroutine.slot]
        self._free.append(coroutine.slot)
        if coroutine.ran_seconds is not None:
            self._ran += 1
            self._slot_seconds += time.monotonic() - coroutine.taken_at
        self._note_gone()

    def _note_gone(self) -> None:
        self._gone += 1
        self._expect_turn()

    def _expect_turn(self) -> None:
        """See to it that _end_turn() is called, once for all."""
        if not self._is_turning:
            self._is_turning = True
            # Not in the context of the job that is just ending.
            self._loop.call_soon(self._end_turn, context=self._context)

    def _end_turn(self) -> None:
        self._is_turning = False
        self._services.settler.wake_up()
        if self._ran:
            self._prefetch.took(self._slot_seconds / self._ran, self._ran)
            self._ran, self._slot_seconds = 0, 0.0
        if self._gone:
            self._ended += self._gone
            self._gone = 0
            self._has_ended.set()
            self._fill()
            if not self._stopping and self.capacity():
                self._services.on_capacity()

    # One job --------------------------------------------------------------------------

    def _put_soon(self, settlement: Settlement) -> None:
        """Hand an outcome to the settler, which is told at the end of this turn."""
        self._services.settler.put_soon(settlement)
        self._expect_turn()

    async def _run(self, coroutine: Coroutine) -> None:
        """Run a job that was admitted; _end() is called for it, then or later."""
        current.set(coroutine)
        is_settling = False
        try:
            is_settling = await self._perform(coroutine)
        except BaseException as error:
            self._services.salvage(coroutine.job, error, loop="coroutines")
        # It is about to end, and its context refers to the coroutine: nothing of a job
        # may be left to the garbage collector, which would walk over everything else to
        # find it.
        coroutine.task = None
        if not is_settling:
            self._end(coroutine)

    async def _perform(self, coroutine: Coroutine) -> bool:
        """Run the job; return whether its slot waits for its settle."""
        job, services = coroutine.job, self._services
        # Before the arguments are read: they too can end a process.
        services.slots.enter(coroutine.slot, job.id, job.delivery)
        try:
            if TAG in job.args or TAG in job.kwargs:
                # There may be model instances in it, which are fetched.
                prepared = await sync_to_async(prepare)(job, services.settings)
            else:
                prepared = prepare(job, services.settings)
            if isinstance(prepared, Performed):
                services.hand_back_near(job)
                done = partial(self._note_commit, coroutine)
                self._put_soon(Settlement(job, prepared, done))
                return True
            is_held = services.leases.get(job) is not None
            if not is_held or not prepared.task.options.is_async:
                # Lost meanwhile; or declared meanwhile, and a thread's.
                services.hand_back_near(job)
                self._put_soon(Settlement(job, None))
                return False
            # A receiver may wait for whatever it likes, so it is called in a thread.
            started = signals.job_started
            if started.receivers and started.has_listeners(prepared.task):
                await sync_to_async(telemetry.started)(prepared.task, job)
            else:
                telemetry.started(prepared.task, job)
            run = collected = None
            held = coroutine.held
            if prepared.options.accumulate is not None:
                # It asks the database, and calls may hold model instances.
                run, collected = await sync_to_async(self._collected)(held, prepared)
                prepared = collected.prepared
            control = LoopControl(services, held, prepared, run)
            performed = await self._call_task(coroutine, prepared, control)
        finally:
            # Nothing of it may run on when another worker runs its next attempt.
            await coroutine.end_calls()
        # A hard timeout covers everything up to here.
        coroutine.hard_at = None
        coroutine.ran_seconds = performed.ran_seconds
        if run is not None and collected is not None:
            performed, ends = collected.shared(performed)
            run.settle_others(performed, ends)
        if control.has_reported:
            # What it has said last may have to wait for what is being written.
            settlement = await asyncio.to_thread(control.close, performed)
        else:
            settlement = control.close(performed)
        if settlement is None:
            return False
        waits = prepared.options.settle == "immediate"
        if waits:
            settlement.done = partial(self._note_commit, coroutine)
        self._put_soon(settlement)
        return waits

    async def _call_task(
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
            self._services.settings,
            installation=self._services.installation,
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
        services = self._services
        run = services.collector.collect(held, prepared)
        others = run.other_jobs
        return run, begin_run(held.job, prepared, others, services.settings)

    def _interrupt_soon(self, coroutine: Coroutine) -> None:
        """Called in the heartbeat's thread: somebody has cancelled the job."""
        self._loop.call_soon_threadsafe(coroutine.interrupt, "cancel")

    def _note_commit(self, coroutine: Coroutine) -> None:
        """Let a slot go whose job is settled. Called in the settler's thread."""
        self._committed.append(coroutine)
        if not self._is_told:
            # One wake of the loop for all of one write.
            self._is_told = True
            self._loop.call_soon_threadsafe(self._end_committed)

    def _end_committed(self) -> None:
        # First: what is noted from here on wakes the loop again.
        self._is_told = False
        while self._committed:
            self._end(self._committed.popleft())
