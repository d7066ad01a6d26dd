"""What one worker was told: by its command line and by the settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django_pgqueue.conf import Settings

PROCESSES_MAX = 256
THREADS_MAX = 1_000
ASYNC_SLOTS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of one worker; children get the same ones."""

    settings: Settings
    queues: tuple[str, ...] = ()  # Empty: all.
    processes: int = 1
    threads: int = 8
    async_slots: int = 100  # Coroutines that a process runs at once, beside threads.
    has_async_tasks: bool = False  # Whether any is declared.
    drain: bool = False  # Exit when nothing is due.
    grace_seconds: float = 30.0
    health_port: int | None = None  # None: no health server. 0: any free port.
    health_host: str = "127.0.0.1"

    @property
    def lease(self) -> timedelta:
        """How long a claimed job stays ours without a heartbeat."""
        return timedelta(seconds=self.settings.lease_seconds)

    @property
    def connections_max(self) -> int:
        """
        The most connections that this worker opens to the jobs' database.

        Each process: claimer, settler, heartbeat, the reporter once a task reports
        progress, and one per thread for its task's queries; the listener where it
        listens. Coroutines share as many threads again for theirs. One process of the
        fleet also leads; the supervisor opens one for a moment after a crash.
        """
        loops = 5 if self.settings.listen else 4
        threads = self.threads + self.sync_threads * self.has_async_tasks
        return self.processes * (loops + threads) + 2

    @property
    def sync_threads(self) -> int:
        """How many threads run the sync code of coroutines, the ORM's above all."""
        return min(self.threads, self.async_slots)

    @property
    def concurrency(self) -> str:
        """What runs at once, for people."""
        if not self.has_async_tasks:
            return f"{self.processes} x {self.threads} (processes x threads)"
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        slots = f"{self.async_slots} async slot{'s' if self.async_slots > 1 else ''}"
        return f"{self.processes} x ({threads} + {slots})"
