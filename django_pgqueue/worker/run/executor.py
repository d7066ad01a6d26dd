"""
Executor: the threads that call tasks.

The eighth hop of a job's life. A thread takes a claimed job, marks its slot, runs the
task between two clean-ups of Django's connections, and hands the outcome to the
settler.

There are as many slots as threads. With settle="immediate" a job keeps its slot until
its ack is committed, so a crash repeats at most as many finished jobs as there are
threads; but the thread goes on to the next job while there is another slot.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial

from django_pgqueue.bounds import FAIR
from django_pgqueue.queues.claim import CLAIM_LIMIT_MAX, Claimed
from django_pgqueue.tasks.outcome import Performed
from django_pgqueue.tasks.perform import attempt, unguarded
from django_pgqueue.tasks.prepare import Prepared, prepare
from django_pgqueue.worker.claim.capacity import Prefetch
from django_pgqueue.worker.claim.turns import StartOrder
from django_pgqueue.worker.lease.leases import Held
from django_pgqueue.worker.run.call_collector import Run
from django_pgqueue.worker.run.control import Control, JobServices
from django_pgqueue.worker.run.isolation import (
    clean_after_job,
    clean_connections,
    new_thread,
    prepare_thread,
    watch_connections,
)
from django_pgqueue.worker.run.run_token import RunToken
from django_pgqueue.worker.run.watchdog import Watchdog
from django_pgqueue.worker.settle.settler import Settlement

# Claimed for a wake although enough is waiting here: they may be of a higher rank. And
# the buffer holds half more than its share then, not twice that much.
EXTRA_JOBS_MAX = 20

# How often it is looked whether what was taken for a short job holds up others, while
# any are waiting.
SPOT_SECONDS = 0.005


class Executor:
    """Threads that run what the claimer puts into their buffer."""

    def __init__(
        self,
        *,
        threads: int,
        services: JobServices,
        watchdog: Watchdog,
        order: StartOrder,
    ) -> None:
        self.count = threads
        self._services = services
        self._slots, self._settler = services.slots, services.settler
        self._watchdog = watchdog
        # Of those that wait here, the lowest goes first.
        self._order = order
        self._buffer: deque[Claimed] = deque()
        self._free: deque[int] = deque(range(threads))
        # When the job of each slot was taken; and the slots whose jobs have run and
        # wait for their acks.
        self._taken_at = [0.0] * threads
        self._unsettled: set[int] = set()
        self._stopping = False
        self._stopped = threading.Event()
        # The claimer was told that there is no capacity, and waits to hear of some.
        self._was_full = False
        self._full_at = 0
        self._prefetch = Prefetch(threads)
        self._run_token = RunToken(threads, self._has_work)
        self._threads = [
            new_thread(self._run, n, name=f"pgqueue-task-{n}") for n in range(threads)
        ]
        # Jobs wait here and could start, or might wait for too long.
        self._watch = threading.Event()
        self._spotter = new_thread(self._spot, name="pgqueue-spotter")
        services.settler.on_settled = self._settled

    def start(self) -> None:
        """Start the threads."""
        watch_connections()
        self._spotter.start()
        for thread in self._threads:
            thread.start()

    def put(self, jobs: list[Claimed]) -> None:
        """Buffer claimed jobs, in run order; those of lower rank go first."""
        buffer, order, is_in_order = self._buffer, self._order, True
        first = last = None
        # Threads take from it meanwhile.
        with suppress(IndexError):
            first, last = buffer[0], buffer[-1]
        if jobs[0].lane_policy == FAIR:
            jobs = order.arrange(jobs, first)
        if last is not None:
            is_in_order = order.place(jobs[0]) >= order.place(last)
        if is_in_order:
            buffer.extend(jobs)
        else:
            self._merge(jobs)
        self._run_token.work_came()
        if not self._watch.is_set():
            self._watch.set()

    def capacity(self) -> int:
        """Return how many more jobs could start within the horizon; 0: none."""
        # Said first: a thread that becomes free after this tells the claimer.
        self._full_at, self._was_full = 0, True
        idle, buffered, prefetch = len(self._free), len(self._buffer), 0
        if (idle and not buffered) or not self._prefetch.is_stuck():
            prefetch = self._prefetch.ahead()
        capacity = idle + prefetch - buffered
        # Not one by one: a claim of half of what fits costs hardly more than of one.
        self._full_at = idle + prefetch // 2 if prefetch else 0
        if capacity <= 0 or (buffered and 2 * capacity < prefetch):
            return 0
        self._was_full = False
        return min(capacity, CLAIM_LIMIT_MAX)

    def extra_capacity(self) -> int:
        """Return how many jobs to claim for a wake, beyond capacity()."""
        ahead = self._prefetch.ahead()
        is_flowing = ahead and not self._prefetch.is_stuck()
        if not is_flowing:
            return 0
        if 2 * len(self._buffer) >= 3 * ahead:
            return 0
        return min(1 + ahead // 8, EXTRA_JOBS_MAX)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits for its ack, and nothing is buffered."""
        return len(self._free) == self.count and not self._buffer

    def stop(self) -> None:
        """Hand back what has not started; the threads end after their job."""
        self._stopping = True
        self.hand_back()
        self._run_token.over()
        self._stopped.set()
        self._watch.set()

    def hand_back(self) -> None:
        """Return every buffered job to its queue, as if never claimed."""
        try:
            while True:
                self._settler.put(Settlement(self._buffer.popleft(), None))
        except IndexError:
            pass

    def join(self, until: float) -> bool:
        """Wait for the threads until the monotonic time *until*; False: some run."""
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _has_work(self) -> bool:
        return bool(self._buffer and self._free)

    def _merge(self, jobs: list[Claimed]) -> None:
        """Put *jobs* before those of higher rank that wait already."""
        waiting = []
        try:
            while True:
                waiting.append(self._buffer.popleft())
        except IndexError:
            pass
        # Stable: jobs of equal rank stay in the order of their claims.
        self._buffer.extend(sorted(waiting + jobs, key=self._order.place))

    def _run(self, thread: int) -> None:
        prepare_thread()
        token = self._run_token
        is_rested = True
        while True:
            if token.holder != thread or self._stopping:
                # Who has it may be at rest, and have woken the settler before this
                # thread's outcome.
                is_rested = True
                self._settler.wake_up()
                if not token.take(thread):
                    return
            try:
                slot = self._free.pop()
            except IndexError:
                is_rested = self._rest(thread)
                continue
            try:
                job = self._buffer.popleft()
            except IndexError:
                self._free.append(slot)
                is_rested = self._rest(thread)
                continue
            self._prefetch.taken_at = self._taken_at[slot] = now = time.monotonic()
            self._start(thread, slot, job, now, is_rested)
            is_rested = False

    def _rest(self, thread: int) -> bool:
        """Wait for something to do; what was done may be settled meanwhile."""
        self._settler.wake_up()
        self._run_token.wait_for_work(thread)
        return True

    def _start(
        self, thread: int, slot: int, job: Claimed, now: float, is_rested: bool
    ) -> None:
        keeps_slot = False
        try:
            keeps_slot = self._take(thread, slot, job, now, is_rested)
        except BaseException as error:
            self._services.salvage(job, error, loop="executor")
        if not keeps_slot:
            self._prefetch.took(time.monotonic() - now)
            self._slots.leave(slot)
            self._free.append(slot)
            if self._run_token.holder != thread:
                self._run_token.work_came()
        if self._was_full and len(self._buffer) <= self._full_at:
            self._tell_capacity()

    def _tell_capacity(self) -> None:
        self._was_full = False
        if not self._stopping:
            self._services.on_capacity()

    def _settled(self, slots: list[int]) -> None:
        """Take back the slots of jobs that are settled. Called by the settler."""
        taken_at = self._taken_at
        jobs = len(slots)
        seconds = time.monotonic() - sum([taken_at[slot] for slot in slots]) / jobs
        self._prefetch.took(seconds, jobs)
        for slot in slots:
            self._slots.leave(slot)
        self._unsettled.difference_update(slots)
        self._free.extend(slots)
        self._run_token.work_came()
        if self._was_full and not self._buffer:
            self._tell_capacity()

    def _take(
        self, thread: int, slot: int, job: Claimed, now: float, is_rested: bool
    ) -> bool:
        """Run the job, or say why not; True: its slot is free when it is settled."""
        if self._stopping:
            self._settler.put(Settlement(job, None))
            return False
        held = self._services.admit(job, now)
        if not isinstance(held, Held):
            self._settler.put(Settlement(job, held))
            return False
        if job.accumulate_key is not None:
            self._services.collector.take_near(job, self._buffer)
        if not self._prefetch.is_short(job.task):
            self._run_token.pass_on(thread)
            self._settler.wake_up()
        return self._perform(slot, held, is_rested)

    def _perform(self, slot: int, held: Held, is_rested: bool) -> bool:
        """Run the job; return whether its slot waits for its settle."""
        job = held.job
        if is_rested:
            # Between two jobs without a rest, the clean-up after the first will do.
            clean_connections()
        # Before the arguments are read: they too can end a process.
        self._slots.enter(slot, job.id, job.delivery)
        keeps_slot = copy_context().run(self._call, slot, held)
        clean_after_job()
        return keeps_slot

    def _call(self, slot: int, held: Held) -> bool:
        job, services = held.job, self._services
        prepared = prepare(job, services.settings)
        if isinstance(prepared, Performed):
            services.hand_back_near(job)
            return self._settle(Settlement(job, prepared), slot)
        run = None
        if prepared.options.accumulate is not None:
            run = services.collector.collect(held, prepared)
        control = Control(services, held, prepared, run)
        performed, ends = self._attempt(slot, job, prepared, control, run)
        if performed.ran_seconds is not None:
            self._prefetch.learn(job.task, performed.ran_seconds)
        if run is not None:
            # First: its slot is marked until all of them are written.
            run.settle_others(performed, ends)
        settlement = control.close(performed)
        if settlement is None:
            return False
        if prepared.options.settle == "immediate":
            return self._settle(settlement, slot)
        self._settler.put_soon(settlement)
        return False

    def _attempt(
        self,
        slot: int,
        job: Claimed,
        prepared: Prepared,
        control: Control,
        run: Run | None,
    ) -> tuple[Performed, Sequence[Performed]]:
        timeout = prepared.options.timeout
        # For the supervisor: a task that keeps the interpreter's lock keeps our
        # watchdog from running.
        is_limited = timeout is not None and self.count == 1
        if timeout is not None and is_limited:
            self._slots.limit(slot, timeout.total_seconds())
        try:
            return attempt(
                job,
                prepared,
                self._services.settings,
                installation=self._services.installation,
                control=control,
                guard=unguarded
                if timeout is None
                else partial(self._watchdog.watch, job, timeout),
                others=() if run is None else run.other_jobs,
            )
        finally:
            if is_limited:
                self._slots.limit(slot, None)

    def _settle(self, settlement: Settlement, slot: int) -> bool:
        """Hand an outcome over; its slot is released after it."""
        settlement.slot = slot
        self._unsettled.add(slot)
        self._settler.put_soon(settlement)
        return True

    def _is_at_rest(self) -> bool:
        return not self._buffer and not self._settler.is_kept_waiting

    def _spot(self) -> None:
        """
        See to it that jobs which could start do, and that no others wait here.

        A job that was taken for a short one and is not keeps the token, and the acks
        before it from being written; and jobs that wait behind long ones are handed
        back, for other workers.
        """
        while not self._stopping:
            self._watch.wait()
            taken_at = self._prefetch.taken_at
            self._stopped.wait(SPOT_SECONDS)
            if self._is_at_rest():
                self._watch.clear()
                if self._is_at_rest():
                    continue
                self._watch.set()
            if self._prefetch.taken_at != taken_at or self._stopping:
                continue
            self._settler.wake_up()
            if self._free:
                self._run_token.take_away(self._run_token.holder)
                self._run_token.work_came()
            elif self._prefetch.is_stuck() and not self._unsettled:
                # Not for slow acks, which are slow for other workers too.
                self.hand_back()
                self._settler.wake_up()
