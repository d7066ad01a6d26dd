"""
Executor: the threads that call tasks.

The eighth hop of a job's life. A thread takes a claimed job, marks its slot, runs the
task between two clean-ups of Django's connections, and hands the outcome to the
settler. With settle="immediate" it waits until its ack is committed, so that a crash
repeats at most the one job that each thread was running.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from django_pgqueue import telemetry
from django_pgqueue.conf import Settings
from django_pgqueue.queues.claim import CLAIM_LIMIT_MAX, Claimed
from django_pgqueue.tasks.outcome import Cancelled
from django_pgqueue.tasks.perform import (
    Performed,
    perform,
    prepare,
    refuse,
    unguarded,
)
from django_pgqueue.worker.cleanup import clean_connections, watch_connections
from django_pgqueue.worker.control import Control, Hands
from django_pgqueue.worker.gate import Gate
from django_pgqueue.worker.isolation import (
    Isolation,
    in_own_context,
    keep_caches,
    new_thread,
)
from django_pgqueue.worker.leases import Held, Leases
from django_pgqueue.worker.settler import Settlement, Settler
from django_pgqueue.worker.slots import Slots
from django_pgqueue.worker.watchdog import Watchdog

logger = logging.getLogger("django_pgqueue.worker")

# Jobs are claimed ahead only as far as they can start within this time, so that a
# long task never holds others hostage and priorities stay meaningful.
HORIZON_SECONDS = 0.1
PREFETCH_MAX = 500

# The weight of the newest run in the moving mean of run times.
MEAN_WEIGHT = 0.1


class Executor:
    """Threads that run what the claimer puts into their buffer."""

    def __init__(
        self,
        *,
        threads: int,
        settings: Settings,
        slots: Slots,
        leases: Leases,
        settler: Settler,
        watchdog: Watchdog,
        gate: Gate,
        hands: Hands,
        isolation: Isolation,
        installation: str,
        on_room: Callable[[], None],
    ) -> None:
        self._threads_count = threads
        self._settings = settings
        self._slots = slots
        self._leases = leases
        self._settler = settler
        self._watchdog = watchdog
        self._installation = installation
        self._on_room = on_room
        self._gate = gate
        self._hands = hands
        self._isolation = isolation
        self._buffer: queue.SimpleQueue[Claimed | None] = queue.SimpleQueue()
        self._stopping = False
        self._idle = threads
        self._idle_lock = threading.Lock()
        self._mean_seconds: float | None = None
        self._threads = [
            new_thread(self._run, n, name=f"pgqueue-task-{n}") for n in range(threads)
        ]

    def start(self) -> None:
        """Start the threads."""
        watch_connections()
        for thread in self._threads:
            thread.start()

    def put(self, jobs: list[Claimed]) -> None:
        """Buffer claimed jobs, in run order."""
        for job in jobs:
            self._buffer.put(job)

    def room(self) -> int:
        """Return how many more jobs could start within the horizon; 0: none."""
        if self._gate.is_closed:
            return 0
        prefetch, buffered = self._prefetch(), self._buffer.qsize()
        room = self._idle + prefetch - buffered
        # Not one by one: a claim of half of what fits costs hardly more than of one.
        if buffered and 2 * room < prefetch:
            return 0
        return max(0, min(room, CLAIM_LIMIT_MAX))

    @property
    def is_idle(self) -> bool:
        """Whether no thread runs anything and nothing is buffered."""
        return self._idle == self._threads_count and not self._buffer.qsize()

    def stop(self) -> None:
        """Hand back what has not started; the threads end after their job."""
        self._stopping = True
        self.hand_back()
        for _ in self._threads:
            self._buffer.put(None)

    def hand_back(self) -> None:
        """Return every buffered job to its queue, as if never claimed."""
        try:
            while True:
                job = self._buffer.get_nowait()
                if job is not None:
                    self._settler.put(Settlement(job, None))
        except queue.Empty:
            pass

    def join(self, until: float) -> bool:
        """Wait for the threads until the monotonic time *until*; False: some run."""
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _prefetch(self) -> int:
        mean = self._mean_seconds
        if mean is None or mean > HORIZON_SECONDS:
            return 0
        ahead = self._threads_count * HORIZON_SECONDS / max(mean, 1e-6)
        return min(int(ahead), PREFETCH_MAX)

    def _run(self, thread: int) -> None:
        keep_caches()
        done = threading.Lock()
        done.acquire()
        while True:
            job = self._buffer.get()
            if job is None:
                return
            with self._idle_lock:
                self._idle -= 1
            try:
                self._take(thread, job, done)
            except BaseException:
                # Everything a job can do is caught below; this is a bug of ours. The
                # thread must live on, and the lease will run out.
                logger.exception("failed     loop=executor job=%d", job.id)
                self._slots.leave(thread)
            with self._idle_lock:
                self._idle += 1
            if not self._stopping and self.room():
                self._on_room()

    def _take(self, thread: int, job: Claimed, done: Any) -> None:
        held = self._leases.get(job)
        if self._stopping or held is None or time.monotonic() >= held.valid_until:
            # Stopping; or its lease ran out before it could start, and somebody else
            # may be running it by now: the fence of the release knows.
            self._settler.put(Settlement(job, None))
            return
        refused = refuse(job, self._settings)
        if held.is_cancelled:
            # It was asked to stop after the claim, while it waited here.
            refused = Performed(Cancelled())
        if refused is not None:
            self._settler.put(Settlement(job, refused))
        elif job.runs_alone:
            # It may take its process down: let nobody wait behind it, and nobody run
            # or be unsettled beside it.
            self.hand_back()
            with self._gate.alone():
                self._settler.wait_until_idle(self._settings.lease_seconds)
                self._perform(thread, held, done)
        elif self._gate.is_closed:
            self._settler.put(Settlement(job, None))
        else:
            with self._gate.shared():
                self._perform(thread, held, done)

    def _perform(self, thread: int, held: Held, done: Any) -> None:
        job = held.job
        clean_connections()
        # Before the arguments are read: they too can end a process.
        self._slots.enter(thread, job.id, job.delivery)
        is_settling = in_own_context(self._call, held, done)
        clean_connections()
        self._isolation.look(job.id, job.task)
        if is_settling:
            done.acquire()
        self._slots.leave(thread)

    def _call(self, held: Held, done: Any) -> bool:
        """Run the job; return whether *done* is released once it is settled."""
        job = held.job
        prepared = prepare(job, self._settings)
        if isinstance(prepared, Performed):
            self._settler.put(Settlement(job, prepared, done))
            return True
        telemetry.started(prepared.task, job)
        control = Control(self._hands, held, prepared)
        timeout = prepared.options.timeout
        performed = perform(
            job,
            prepared,
            self._settings,
            installation=self._installation,
            control=control,
            guard=unguarded
            if timeout is None
            else functools.partial(self._watchdog.watch, job, timeout),
        )
        self._learn(performed.ran_seconds or 0.0)
        waits = prepared.options.settle == "immediate" or job.runs_alone
        return control.finish(performed, done if waits else None) and waits

    def _learn(self, seconds: float) -> None:
        mean = self._mean_seconds
        self._mean_seconds = (
            seconds if mean is None else mean + MEAN_WEIGHT * (seconds - mean)
        )
