"""What one worker was told: by its command line and by the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from django_pgqueue.conf import Settings
from django_pgqueue.postgres.connect import Link
from django_pgqueue.tasks.registry import has_accumulating_tasks, has_async_tasks
from django_pgqueue.topics.consume import Consumer, declared
from django_pgqueue.worker.queue_plan import QueuePlan, read_plan
from django_pgqueue.worker.recycling import Limits
from django_pgqueue.worker.tally import Tally

PROCESSES_MAX = 256
THREADS_MAX = 1_000
ASYNC_SLOTS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of one worker; children get the same ones."""

    settings: Settings
    queues: tuple[str, ...] = ()  # As --queues says it, an entry each. Empty: all.
    queue_order: str | None = None  # None: by weight if there is one, else by priority.
    processes: int = 1
    threads: int = 8
    # Of each process.
    limits: Limits = field(default_factory=Limits)
    async_slots: int = 100  # Coroutines that a process runs at once, beside threads.
    drain: bool = False  # Exit when nothing is due.
    grace_seconds: float = 30.0
    health_port: int | None = None  # None: no health server. 0: any free port.
    health_host: str = "127.0.0.1"
    # What answers /metrics there: called in a thread with what the processes have done,
    # how many of them do what, and the Accept header; returns content type and body.
    # None: there is no such page.
    metrics: Callable[[Tally, Mapping[str, int], str], tuple[str, bytes]] | None = None
    # A chore of the leader: what people have asked to be done to many jobs. It reads
    # by the filters of pages and commands, which no worker knows. None: nobody does it.
    bulk_acts: Callable[[Link], float] | None = None

    @property
    def lease(self) -> timedelta:
        """How long a claimed job stays ours without a heartbeat."""
        return timedelta(seconds=self.settings.lease_seconds)

    @property
    def plan(self) -> QueuePlan:
        """Which queues are served, in which order, and how many jobs of each."""
        return read_plan(self.queues, self.queue_order)

    @property
    def shares_connection(self) -> bool:
        """Whether all loops of a process share one connection."""
        return self.threads == 1

    @property
    def connections_max(self) -> int:
        """
        The most connections that this worker opens to the jobs' database.

        Each process: claimer, settler, heartbeat, the reporter once a task reports
        progress, the promoter once a job of a lane was stored, and one per thread for
        its task's queries; the listener where it listens, and the call collector where
        a task accumulates. In a process with one thread all of these loops share one
        connection. Coroutines share as many threads again for theirs. A reader of a
        consumer group has two, and a process one more for all of them. One process of
        the fleet also leads, with one more during a bulk act; the supervisor opens one
        for a moment after a crash. Not counted are processes in which jobs run alone
        after one: four each, and one for each job that runs there.
        """
        loops = 5 + self.settings.listen + has_accumulating_tasks()
        if self.shares_connection:
            settings = self.settings
            loops = 1 + (settings.listen_database not in (None, settings.database))
        threads = self.threads + self.sync_threads * has_async_tasks()
        readers = sum(each.readers for each in self.consumers)
        readers = 2 * readers + (readers > 0)
        return self.processes * (loops + threads + readers) + 3

    @property
    def consumers(self) -> list[Consumer]:
        """The groups whose queues it serves."""
        return [each for each in declared() if self.plan.serves(each.queue)]

    @property
    def sync_threads(self) -> int:
        """How many threads run the sync code of coroutines, the ORM's above all."""
        return min(self.threads, self.async_slots)

    @property
    def concurrency(self) -> str:
        """What runs at once, for people."""
        if not has_async_tasks():
            return f"{self.processes} x {self.threads} (processes x threads)"
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        slots = f"{self.async_slots} async slot{'s' if self.async_slots > 1 else ''}"
        return f"{self.processes} x ({threads} + {slots})"
