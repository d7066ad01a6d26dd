"""
Coroutines: the event loop that runs async tasks.

The eighth hop of an async job's life, beside the executor's threads. One loop in a
thread of its own, started when the first async job comes. A job has a slot for as long
as it runs and, with settle="immediate", until its ack is committed.

A *turn* is one round of the event loop. What can be done once for all jobs that end in
the same turn is done at its end: the settler is told, what they left behind is looked
for, others start in their slots, the claimer hears of capacity.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.queues.claim import CLAIM_LIMIT_MAX, Claimed
from django_pgqueue.tasks.perform import timeout_message
from django_pgqueue.worker.claim.capacity import (
    HORIZON_SECONDS,
    MEAN_WEIGHT,
    PREFETCH_MAX,
)
from django_pgqueue.worker.lease.leases import Slots
from django_pgqueue.worker.run.async_runner import (
    BY_CALLER,
    AsyncRunner,
    Coroutine,
    start_task,
)
from django_pgqueue.worker.run.control import JobServices
from django_pgqueue.worker.run.sync_calls import SyncThreads
from django_pgqueue.worker.run.watchdog import HARD_GRACE_SECONDS

# A loop that does not answer for longer than this is blocked.
BLOCKED_SECONDS = 1.0

ASK_SECONDS = 0.25

# Frames of a stack that are shown: the innermost.
FRAMES = 12


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
        settings: Settings,
        slots: Slots,
        services: JobServices,
        installation: str,
        grace_seconds: float,
        on_capacity: Callable[[], None],
        on_suspect: Callable[[], None] | None,
        on_hard_timeout: Callable[[Claimed, TaskTimeout], None],
    ) -> None:
        self.count = count
        self._services = services
        self._on_capacity = on_capacity
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
        self._runner = AsyncRunner(
            self._loop,
            settings=settings,
            slots=slots,
            services=services,
            installation=installation,
            grace_seconds=grace_seconds,
            on_suspect=on_suspect,
            on_turn=self._expect_turn,
            on_end=self._note_end,
        )
        # Of each job a copy: nothing of another job's is in it.
        self._context = BY_CALLER.context()
        self._stopping = False
        self._is_closing = False
        # Jobs put so far, counted by the claimer's thread, and jobs that ended, by the
        # loop's. Their difference needs no lock.
        self._put = 0
        self._ended = 0
        self._has_ended = threading.Event()
        self._mean_seconds: float | None = None
        # Monotonic time at which a job was last given a slot.
        self._taken_at = 0.0
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
        ahead = self._prefetch() if held < self.count or not self._is_stuck() else 0
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
        self.hand_back()

    def hand_back(self) -> None:
        """Return every waiting job to its queue, as if never claimed."""
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

    def _prefetch(self) -> int:
        mean = self._mean_seconds
        if mean is None or mean > HORIZON_SECONDS:
            return 0
        ahead = self.count * HORIZON_SECONDS / max(mean, 1e-6)
        return min(int(ahead), PREFETCH_MAX)

    def _is_stuck(self) -> bool:
        return time.monotonic() - self._taken_at > HORIZON_SECONDS

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
        waiting, free, runner = self._waiting, self._free, self._runner
        if not waiting:
            return
        was_idle = not self._running
        now = time.monotonic()
        while waiting and free:
            job = waiting.popleft()
            self._taken_at = now
            coroutine = runner.admit(job, free[-1], self._sync_threads, now)
            if coroutine is None:
                self._note_gone()
                continue
            if job.accumulate_key is not None:
                for _ in range(self._services.collector.take_near(job, waiting)):
                    self._note_gone()
            self._running[free.pop()] = coroutine
            coroutine.task = asyncio.Task(
                runner.run(coroutine),
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
        self._spotted_at = self._taken_at
        self._loop.call_later(SPOT_SECONDS, self._spot, context=self._context)

    def _spot(self) -> None:
        """Hand back what waits behind jobs that take longer than was expected."""
        self._is_spotting = False
        if not self._waiting:
            return
        # Not by the clock alone: a turn of a busy loop may take longer than that, and
        # those that end in this one free their slots only at its end.
        if self._taken_at == self._spotted_at and not self._is_turning:
            self._hand_back()
        else:
            self._spot_later()

    def _hand_back(self) -> None:
        while self._waiting:
            self._runner.give_back(self._waiting.popleft())
            self._note_gone()

    def _interrupt(self) -> None:
        for coroutine in self._running.values():
            coroutine.interrupt("interrupt")

    def _note_end(self, coroutine: Coroutine) -> None:
        """Free the slot of a job; another one starts there at the end of the turn."""
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
            self._learn(self._slot_seconds / self._ran, self._ran)
            self._ran, self._slot_seconds = 0, 0.0
        if self._gone:
            self._ended += self._gone
            self._gone = 0
            self._has_ended.set()
            self._fill()
            if not self._stopping and self.capacity():
                self._on_capacity()

    def _learn(self, seconds: float, jobs: int = 1) -> None:
        """Note how long some jobs had their slots, in the mean."""
        mean = self._mean_seconds
        weight = min(jobs * MEAN_WEIGHT, 1.0)
        self._mean_seconds = (
            seconds if mean is None else mean + weight * (seconds - mean)
        )
