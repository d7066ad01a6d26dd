"""
Capacity: how many more jobs could start soon.

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
from typing import NamedTuple

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
