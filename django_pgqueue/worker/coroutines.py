"""
Coroutines: the event loop that runs async tasks.

The eighth hop of an async job's life, beside the executor's threads. One loop in a
thread of its own, started when the first async job comes. A job has a slot for as long
as it runs and, with settle="immediate", until its ack is committed.
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
from contextvars import Context
from typing import Any

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.queues.claim import CLAIM_LIMIT_MAX, Claimed
from django_pgqueue.worker.async_runner import AsyncRunner
from django_pgqueue.worker.control import Hands
from django_pgqueue.worker.coroutine import Coroutine, current, start_task
from django_pgqueue.worker.executor import HORIZON_SECONDS, MEAN_WEIGHT, PREFETCH_MAX
from django_pgqueue.worker.gate import Gate
from django_pgqueue.worker.isolation import Isolation
from django_pgqueue.worker.loop_watch import LoopWatch
from django_pgqueue.worker.slots import Slots
from django_pgqueue.worker.sync_calls import SyncThreads

logger = logging.getLogger("django_pgqueue.worker")

# Threads of asyncio.to_thread().
ASIDE_THREADS = 32


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
        gate: Gate,
        hands: Hands,
        isolation: Isolation,
        installation: str,
        grace_seconds: float,
        on_room: Callable[[], None],
        on_alone: Callable[[], None],
        on_hard_timeout: Callable[[Claimed, TaskTimeout], None],
    ) -> None:
        self._count = count
        self._slots = slots
        self._gate = gate
        self._on_room = on_room
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
            gate=gate,
            hands=hands,
            isolation=isolation,
            installation=installation,
            grace_seconds=grace_seconds,
            on_alone=on_alone,
        )
        self._stopping = False
        self._is_closing = False
        # Jobs put so far, counted by the claimer's thread, and jobs that ended, by the
        # loop's. Their difference needs no lock.
        self._put = 0
        self._ended = 0
        self._has_ended = threading.Event()
        self._mean_seconds: float | None = None
        # From here on the loop's own; others may copy.
        self._waiting: deque[Claimed] = deque()
        self._running: dict[int, Coroutine] = {}  # By slot.
        self._free = list(range(first_slot + count - 1, first_slot - 1, -1))

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

    def room(self) -> int:
        """Return how many more jobs could start within the horizon; 0: none."""
        if self._gate.is_closed:
            return 0
        ahead = self._prefetch()
        held = self._put - self._ended
        room = self._count + ahead - held
        # Not one by one, as in the executor.
        if held > self._count and 2 * room < ahead:
            return 0
        return max(0, min(room, CLAIM_LIMIT_MAX))

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
        ahead = self._count * HORIZON_SECONDS / max(mean, 1e-6)
        return min(int(ahead), PREFETCH_MAX)

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
        self._waiting.extend(jobs)
        self._fill()

    def _fill(self) -> None:
        if self._stopping:
            self._hand_back()
            return
        if self._waiting and not self._running:
            self._watch.look()
        while self._waiting and self._free:
            job = self._waiting.popleft()
            coroutine = Coroutine(job, self._free.pop(), self._sync_threads.lend())
            self._running[coroutine.slot] = coroutine
            # In a context of its own: nothing of another job's is in it.
            coroutine.task = self._loop.create_task(
                self._run(coroutine), name=f"job {job.id}", context=Context()
            )

    def _hand_back(self) -> None:
        while self._waiting:
            self._runner.give_back(self._waiting.popleft())
            self._count_ended()

    def _interrupt(self) -> None:
        for coroutine in self._running.values():
            coroutine.interrupt("interrupt")

    async def _run(self, coroutine: Coroutine) -> None:
        current.set(coroutine)
        try:
            ran_seconds = await self._runner.run(coroutine)
        except BaseException:
            # Everything a job can do is caught in there; this is a bug of ours. The
            # loop must live on, and the lease will run out.
            logger.exception("failed     loop=coroutines job=%d", coroutine.job.id)
        else:
            if ran_seconds is not None:
                self._learn(ran_seconds)
        self._slots.leave(coroutine.slot)
        del self._running[coroutine.slot]
        self._free.append(coroutine.slot)
        self._count_ended()
        self._fill()
        if not self._stopping and self.room():
            self._on_room()

    def _count_ended(self) -> None:
        self._ended += 1
        self._has_ended.set()

    def _learn(self, seconds: float) -> None:
        mean = self._mean_seconds
        self._mean_seconds = (
            seconds if mean is None else mean + MEAN_WEIGHT * (seconds - mean)
        )
