"""What one worker was told: by its command line and by the settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django_pgqueue.conf import Settings

PROCESSES_MAX = 256
THREADS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of one worker; children get the same ones."""

    settings: Settings
    queues: tuple[str, ...] = ()  # Empty: all.
    processes: int = 1
    threads: int = 8
    drain: bool = False  # Exit when nothing is due.
    grace_seconds: float = 30.0

    @property
    def lease(self) -> timedelta:
        """How long a claimed job stays ours without a heartbeat."""
        return timedelta(seconds=self.settings.lease_seconds)

    @property
    def connections_max(self) -> int:
        """
        The most connections that this worker opens to the jobs' database.

        Each process: claimer, settler, heartbeat, and one per thread for its task's
        queries; the listener where it listens. One process of the fleet also leads;
        the supervisor opens one for a moment after a crash.
        """
        loops = 4 if self.settings.listen else 3
        return self.processes * (loops + self.threads) + 2
