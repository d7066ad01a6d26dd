"""
Capacity: how many more jobs could start soon, and which queues hold which kind of job.

Threads are capacity for some jobs and coroutines for others, and a claim does not know
which kind a row is: the row has a task's name, and no index has it. So what a queue has
shown lately, its mix, decides which capacity its claims are for.
"""

from __future__ import annotations

from typing import NamedTuple

# A queue is taken for what its latest jobs were; so many of them count.
MEMORY_JOBS = 1_000

# Queues remembered. Beyond it all are forgotten, and learnt anew from their next jobs.
QUEUES_MAX = 10_000


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
