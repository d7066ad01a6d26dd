"""
Capacity: how many more jobs could start soon, and who takes them.

Threads are capacity for some jobs and coroutines for others, and a claim does not know
which kind a row is: the row has a task's name, and no index has it. So what a queue has
shown lately, its mix, decides which capacity its claims are for.

Jobs are claimed ahead of the threads that will run them: as many as can start within a
short time, so that short jobs are claimed in hundreds and long ones never; a job of
higher priority starts at most that time late. What a long job keeps from starting for
longer is handed back, for other workers to run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol

from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks import registry
from django_pgqueue.worker.lease.leases import Leases

# A queue is taken for what its latest jobs were; so many of them count.
MEMORY_JOBS = 1_000

# Queues remembered. Beyond it all are forgotten, and learnt anew from their next jobs.
QUEUES_MAX = 10_000

# Jobs are claimed ahead only as far as they can start within this time.
HORIZON_SECONDS = 0.1
PREFETCH_MAX = 1_000

# The weight of the newest job in the moving mean of how long jobs take.
MEAN_WEIGHT = 0.1

# A job that runs no longer than this is over before another thread would be awake.
SHORT_SECONDS = 0.000_1

# A task is short when nearly all of its latest runs were. Not its mean: one run that
# met a busy processor takes as long as hundreds of others.
SHORT_SHARE = 0.9
SHARE_WEIGHT = 0.02

# Tasks whose run times are remembered; beyond it, all are learnt anew.
TASKS_MAX = 10_000


# Jobs that a process holds beside one for each thread: those that wait to start, and
# those that have run and are not written yet. It claims no more while the database does
# not take its outcomes, so that a crash then repeats no more. With many coroutines,
# twice as many as those.
HELD_MAX = 2_000


class Capacity(NamedTuple):
    """How many more jobs could start soon."""

    threads: int  # Sync jobs.
    coroutines: int  # Async jobs.


class QueueMix:
    """
    Queue mix: which queues hold async jobs. Used by the claimer's thread alone.

    *pure*: async jobs, and no sync one among the latest. *mixed*: both.
    """

    def __init__(self, memory_jobs: int = MEMORY_JOBS) -> None:
        self._memory = memory_jobs
        # By queue: how many jobs ago the latest sync one was, and the latest async
        # one; the memory stands for never.
        self._since: dict[str, list[int]] = {}
        self.pure: frozenset[str] = frozenset()
        self.mixed: frozenset[str] = frozenset()

    def note(self, queue: str, *, is_async: bool, count: int = 1) -> None:
        """Note that *queue* gave *count* jobs of this kind."""
        since = self._since.get(queue)
        if since is None:
            if len(self._since) >= QUEUES_MAX:
                self._since.clear()
                self.pure = self.mixed = frozenset()
            since = self._since[queue] = [self._memory, self._memory]
        this, other = (1, 0) if is_async else (0, 1)
        if not since[this] and since[other] >= self._memory:
            return  # As ever.
        since[this] = 0
        since[other] = min(since[other] + count, self._memory)
        is_lately_sync = since[0] < self._memory
        is_lately_async = since[1] < self._memory
        is_pure = is_lately_async and not is_lately_sync
        if is_pure is not (queue in self.pure):
            self.pure ^= {queue}
        if (is_lately_async and is_lately_sync) is not (queue in self.mixed):
            self.mixed ^= {queue}


class Prefetch:
    """What the run times of the latest jobs say about the next ones."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        # Seconds for which a job keeps its slot: its run, and with settle="immediate"
        # its ack too.
        self._mean: float | None = None
        self._short_share: dict[str, float] = {}
        # Monotonic time at which a job was last taken to be run.
        self.taken_at = 0.0

    def took(self, seconds: float, jobs: int = 1) -> None:
        """Note how long *jobs* jobs kept a slot, *seconds* on average."""
        mean = self._mean
        if mean is None:
            self._mean = seconds
        else:
            weight = MEAN_WEIGHT if jobs == 1 else 1 - (1 - MEAN_WEIGHT) ** jobs
            # A lost update of two threads does no harm.
            self._mean = mean + weight * (seconds - mean)

    def learn(self, task: str, seconds: float) -> None:
        """Note how long a job of *task* ran."""
        shares = self._short_share
        is_short = float(seconds <= SHORT_SECONDS)
        share = shares.get(task)
        if share is not None:
            shares[task] = share + SHARE_WEIGHT * (is_short - share)
        else:
            if len(shares) >= TASKS_MAX:
                shares.clear()
            shares[task] = is_short

    def is_short(self, task: str) -> bool:
        """Whether jobs of *task* are over before another thread would be awake."""
        return self._short_share.get(task, 0.0) >= SHORT_SHARE

    def ahead(self) -> int:
        """Return how many jobs, beyond those for idle threads, start soon."""
        mean = self._mean
        if mean is None or mean > HORIZON_SECONDS:
            return 0
        jobs = self._threads * HORIZON_SECONDS / max(mean, 1e-6)
        return min(int(jobs), PREFETCH_MAX)

    def is_stuck(self) -> bool:
        """Whether nothing has started for longer than a job may wait here."""
        return time.monotonic() - self.taken_at > HORIZON_SECONDS


class Runs(Protocol):
    """Who runs jobs of one kind."""

    count: int

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing waits to."""

    def capacity(self) -> int:
        """Return how many more jobs could start within the horizon; 0: none."""

    def put(self, jobs: list[Claimed]) -> None:
        """Take claimed jobs, in run order."""

    def stop(self) -> None:
        """Hand back what has not started; what runs goes on."""

    def hand_back(self) -> None:
        """Return every job that has not started to its queue."""

    def join(self, until: float) -> bool:
        """Wait for what runs until the monotonic time *until*; False: some does."""


class Threads(Runs, Protocol):
    """The executor."""

    def start(self) -> None:
        """Start the threads."""

    def extra_capacity(self) -> int:
        """Return how many jobs to claim for a wake, beyond capacity()."""


class Writes(Protocol):
    """The settler."""

    on_written: Callable[[], None] | None


class Dispatcher:
    """
    Threads and coroutines, as one: gives each claimed job to either.

    A claim is for one kind of capacity and may bring jobs of the other kind, where a
    queue shows something new. As many as there is capacity for run; the rest is handed
    back, and the queue is known to be mixed from then on.
    """

    def __init__(
        self,
        executor: Threads,
        coroutines: Runs,
        settler: Writes,
        mix: QueueMix,
        leases: Leases,
        *,
        on_capacity: Callable[[], None],
        hand_back: Callable[[list[Claimed]], None],
    ) -> None:
        self._executor = executor
        self._coroutines = coroutines
        self._settler = settler
        self._mix = mix
        self._leases = leases
        self._on_capacity = on_capacity
        self._hand_back = hand_back
        self._held_max = max(HELD_MAX, 2 * coroutines.count) + executor.count

    def capacity(self) -> Capacity:
        """Return how many more jobs of each kind could start soon."""
        # Said first: what is written from here on is told to the claimer.
        self._settler.on_written = self._on_capacity
        left = self._held_max - self._leases.load()
        if left <= 0:
            return Capacity(0, 0)
        self._settler.on_written = None
        threads, coroutines = self._executor.capacity(), self._coroutines.count
        if self._mix.pure or self._mix.mixed:
            coroutines = self._coroutines.capacity()
        return Capacity(min(threads, left), min(coroutines, left))

    def extra_capacity(self) -> int:
        """Return how many more jobs to claim for a wake while no thread is free."""
        left = self._held_max - self._leases.load()
        return max(0, min(self._executor.extra_capacity(), left))

    def put(self, jobs: list[Claimed], *, for_coroutines: bool) -> None:
        """Take claimed jobs, in run order, from a claim for one kind of capacity."""
        sync_jobs: list[Claimed] = []
        async_jobs: list[Claimed] = []
        # Whole batches of one task are the rule, so tasks are asked, not jobs. Of an
        # undeclared task: either side can say so.
        tasks = {name: registry.tasks.get(name) for name in {job.task for job in jobs}}
        is_async = {
            name: for_coroutines if task is None else task.options.is_async
            for name, task in tasks.items()
        }
        shown = Counter([(job.queue, job.task) for job in jobs])
        for (queue, name), count in shown.items():
            if tasks[name] is not None:
                self._mix.note(queue, is_async=is_async[name], count=count)
        if not any(is_async.values()):
            sync_jobs = jobs
        elif all(is_async.values()):
            async_jobs = jobs
        else:
            for job in jobs:
                (async_jobs if is_async[job.task] else sync_jobs).append(job)
        if for_coroutines:
            sync_jobs = self._fitting(sync_jobs, self._executor.capacity())
        elif async_jobs:
            async_jobs = self._fitting(async_jobs, self._coroutines.capacity())
        if sync_jobs:
            self._executor.put(sync_jobs)
        if async_jobs:
            self._coroutines.put(async_jobs)

    def start(self) -> None:
        """Start the threads; the event loop starts with its first job."""
        self._executor.start()

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing waits to."""
        return self._executor.is_idle and self._coroutines.is_idle

    def stop(self) -> None:
        """Hand back what has not started; what runs goes on."""
        self._executor.stop()
        self._coroutines.stop()

    def hand_back(self) -> None:
        """Return every job that has not started to its queue, as if never claimed."""
        self._executor.hand_back()
        self._coroutines.hand_back()

    def join(self, until: float) -> bool:
        """Wait for what runs until the monotonic time *until*; False: some does."""
        return self._executor.join(until) and self._coroutines.join(until)

    def _fitting(self, jobs: list[Claimed], capacity: int) -> list[Claimed]:
        """Return the jobs that there is capacity for; hand back the others."""
        self._hand_back(jobs[capacity:])
        return jobs[:capacity]
