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

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from django_pgqueue.bounds import FAIR
from django_pgqueue.conf import Settings
from django_pgqueue.queues.claim import CLAIM_LIMIT_MAX, Claimed
from django_pgqueue.tasks.outcome import Performed, Retried, outcome_after
from django_pgqueue.tasks.perform import attempt, unguarded
from django_pgqueue.tasks.prepare import Prepared, prepare
from django_pgqueue.tasks.registry import find_task
from django_pgqueue.worker.claim.capacity import Prefetch
from django_pgqueue.worker.claim.turns import StartOrder
from django_pgqueue.worker.lease.leases import Held, Leases, Slots
from django_pgqueue.worker.run.call_collector import Run
from django_pgqueue.worker.run.control import Control, JobServices, RunControl
from django_pgqueue.worker.run.isolation import (
    clean_after_job,
    clean_connections,
    in_own_context,
    keep_caches,
    keep_connections,
    new_thread,
    watch_connections,
)
from django_pgqueue.worker.run.run_token import RunToken
from django_pgqueue.worker.run.watchdog import Watchdog
from django_pgqueue.worker.settle.settler import Settlement, Settler

# Where not even the policy of its task can be asked.
AGAIN = timedelta(minutes=1)


def salvage(
    job: Claimed,
    error: BaseException,
    *,
    leases: Leases,
    settler: Settler,
    settings: Settings,
) -> None:
    """Settle a job, and those of its run, as failed with *error*, unless they are."""
    for each in (job, *(held.job for held in leases.others(job))):
        # In this order: what leaves the settler is no longer held.
        if settler.has(each):
            continue
        if leases.get(each) is None and not leases.is_settled(each):
            continue
        settler.put(Settlement(each, _failed(each, error, settings)))


def _failed(job: Claimed, error: BaseException, settings: Settings) -> Performed:
    try:
        options = find_task(job.task).resolve(job.queue, settings)
        return Performed(outcome_after(job, options, error), error)
    except Exception:
        return Performed(Retried(AGAIN), error)


logger = logging.getLogger("django_pgqueue.worker")

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
        settings: Settings,
        slots: Slots,
        leases: Leases,
        settler: Settler,
        watchdog: Watchdog,
        services: JobServices,
        installation: str,
        on_capacity: Callable[[], None],
        order: StartOrder,
        on_suspect: Callable[[], None] | None,
    ) -> None:
        self.count = threads
        self._settings = settings
        self._slots = slots
        self._leases = leases
        self._settler = settler
        self._watchdog = watchdog
        self._installation = installation
        self._on_capacity = on_capacity
        # Of those that wait here, the lowest goes first.
        self._order = order
        # Called for a job that is to run alone, which is handed back. None: it runs.
        self._on_suspect = on_suspect
        self._services = services
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
        settler.on_settled = self._settled

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
        keep_caches()
        keep_connections()
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
            # Everything a job can do is caught below; this is a bug of ours. The
            # thread must live on, and the attempt is over.
            logger.exception("failed     loop=executor job=%d", job.id)
            self._salvage(job, error)
        if not keeps_slot:
            self._prefetch.took(time.monotonic() - now)
            self._slots.leave(slot)
            self._free.append(slot)
            if self._run_token.holder != thread:
                self._run_token.work_came()
        if self._was_full and len(self._buffer) <= self._full_at:
            self._tell_capacity()

    def _salvage(self, job: Claimed, error: BaseException) -> None:
        """Settle a job whose outcome a bug of ours has kept back."""
        try:
            self._services.collector.hand_back(job)
            salvage(
                job,
                error,
                leases=self._leases,
                settler=self._settler,
                settings=self._settings,
            )
        except BaseException:
            logger.exception("failed     loop=executor job=%d stays leased", job.id)

    def _tell_capacity(self) -> None:
        self._was_full = False
        if not self._stopping:
            self._on_capacity()

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
        held = self._leases.admit(job, now, self._settings)
        if not isinstance(held, Held):
            self._settler.put(Settlement(job, held))
            return False
        if job.runs_alone and self._on_suspect is not None:
            self._settler.put(Settlement(job, None))
            self._on_suspect()
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
        keeps_slot = in_own_context(self._call, slot, held)
        clean_after_job()
        return keeps_slot

    def _call(self, slot: int, held: Held) -> bool:
        job = held.job
        prepared = prepare(job, self._settings)
        if isinstance(prepared, Performed):
            if job.accumulate_key is not None:
                self._services.collector.hand_back(job)
            return self._settle(Settlement(job, prepared), slot)
        run = None
        if prepared.options.accumulate is None:
            control = Control(self._services, held, prepared)
        else:
            run = self._services.collector.collect(held, prepared)
            control = RunControl(self._services, run)
        performed = self._attempt(slot, job, prepared, control, run)
        if performed.ran_seconds is not None:
            self._prefetch.learn(job.task, performed.ran_seconds)
        if run is not None:
            # First: its slot is marked until all of them are written.
            performed = run.settle_others(performed)
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
    ) -> Performed:
        timeout = prepared.options.timeout
        if timeout is not None and self.count == 1:
            # For the supervisor: a task that keeps the interpreter's lock keeps our
            # watchdog from running.
            self._slots.limit(slot, timeout.total_seconds())
        try:
            performed, ends = attempt(
                job,
                prepared,
                self._settings,
                installation=self._installation,
                control=control,
                guard=unguarded
                if timeout is None
                else self._watchdog.guard(job, timeout),
                others=() if run is None else run.other_jobs,
            )
        finally:
            if timeout is not None and self.count == 1:
                self._slots.limit(slot, None)
        if run is not None:
            run.ends = ends
        return performed

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
