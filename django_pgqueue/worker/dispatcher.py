"""
Dispatcher: gives each claimed job to a thread or to the event loop.

A claim is for one kind of room and may bring jobs of the other kind, where a queue
shows something new. As many as have room run; the rest is handed back, and the queue
is known to be mixed from then on.
"""

from __future__ import annotations

from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.registry import find_sender
from django_pgqueue.worker.coroutines import Coroutines
from django_pgqueue.worker.executor import Executor
from django_pgqueue.worker.room import Kinds, Room
from django_pgqueue.worker.settler import Settlement, Settler


class Dispatcher:
    """Threads and coroutines, as one."""

    def __init__(
        self,
        executor: Executor,
        coroutines: Coroutines,
        settler: Settler,
        kinds: Kinds,
    ) -> None:
        self._executor = executor
        self._coroutines = coroutines
        self._settler = settler
        self._kinds = kinds

    def room(self) -> Room:
        """Return how many more jobs of each kind could start soon."""
        return Room(self._executor.room(), self._coroutines.room())

    def put(self, jobs: list[Claimed], *, for_coroutines: bool) -> None:
        """Take claimed jobs, in run order, from a claim for one kind of room."""
        sync_jobs: list[Claimed] = []
        async_jobs: list[Claimed] = []
        for job in jobs:
            task = find_sender(job.task)
            if task is None:
                # Of an undeclared task: either side can say so.
                (async_jobs if for_coroutines else sync_jobs).append(job)
                continue
            is_async = task.options.is_async
            self._kinds.note(job.queue, is_async=is_async)
            (async_jobs if is_async else sync_jobs).append(job)
        if for_coroutines:
            sync_jobs = self._fitting(sync_jobs, self._executor.room())
        else:
            async_jobs = self._fitting(async_jobs, self._coroutines.room())
        self._executor.put(sync_jobs)
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

    def _fitting(self, jobs: list[Claimed], room: int) -> list[Claimed]:
        """Return the jobs that have room; hand back the others."""
        for job in jobs[room:]:
            self._settler.put(Settlement(job, None))
        return jobs[:room]
