"""
Dispatcher: who runs what was claimed, and how much more may be.

Threads are capacity for some jobs and coroutines for others.
"""

from __future__ import annotations

from collections import Counter

from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks import registry
from django_pgqueue.worker.claim.capacity import Capacity, QueueMix
from django_pgqueue.worker.run.control import JobServices
from django_pgqueue.worker.run.coroutines import Coroutines
from django_pgqueue.worker.run.executor import Executor

# Jobs that a process holds beside one for each thread: those that wait to start, and
# those that have run and are not written yet. It claims no more while the database does
# not take its outcomes, so that a crash then repeats no more. With many coroutines,
# twice as many as those.
HELD_MAX = 2_000


class Dispatcher:
    """
    Threads and coroutines, as one: gives each claimed job to either.

    A claim is for one kind of capacity and may bring jobs of the other kind, where a
    queue shows something new. As many as there is capacity for run; the rest is handed
    back, and the queue is known to be mixed from then on.
    """

    def __init__(
        self,
        executor: Executor,
        coroutines: Coroutines,
        services: JobServices,
        mix: QueueMix,
    ) -> None:
        self._executor = executor
        self._coroutines = coroutines
        self._services = services
        self._leases = services.leases
        self._mix = mix
        self._held_max = max(HELD_MAX, 2 * coroutines.count) + executor.count

    def capacity(self) -> Capacity:
        """Return how many more jobs of each kind could start soon."""
        # Said first: what is written from here on is told to the claimer.
        settler = self._services.settler
        settler.on_written = self._services.on_capacity
        left = self._held_max - self._leases.load()
        if left <= 0:
            return Capacity(0, 0)
        settler.on_written = None
        threads, coroutines = self._executor.capacity(), self._coroutines.count
        if self._mix.pure or self._mix.mixed:
            coroutines = self._coroutines.capacity()
        return Capacity(min(threads, left), min(coroutines, left))

    def extra_capacity(self) -> int:
        """Return how many more jobs to claim for a wake while no thread is free."""
        left = self._held_max - self._leases.load()
        return max(0, min(self._executor.extra_capacity(), left))

    def put(self, jobs: list[Claimed], for_coroutines: bool) -> None:
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

    def join(self, until: float) -> bool:
        """Wait for what runs until the monotonic time *until*; False: some does."""
        return self._executor.join(until) and self._coroutines.join(until)

    def _fitting(self, jobs: list[Claimed], capacity: int) -> list[Claimed]:
        """Return the jobs that there is capacity for; hand back the others."""
        self._services.hand_back(jobs[capacity:])
        return jobs[:capacity]
