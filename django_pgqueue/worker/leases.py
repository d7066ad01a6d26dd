"""
Leases: the jobs that this process holds, from the claim until the settle.

Shared by all loops of a process. Single operations on a dict are atomic in CPython, so
no lock is taken on the way of a job.
"""

from __future__ import annotations

from django_pgqueue.queues.claim import Claimed


class Held:
    """One lease, by this process's own clock."""

    __slots__ = ("claimed_at", "is_lost", "job", "renewed_at", "valid_until")

    def __init__(self, job: Claimed, asked_at: float, lease_seconds: float) -> None:
        self.job = job
        # Before the claim was sent, so that our end of the lease is never later than
        # the database's. Monotonic seconds.
        self.claimed_at = asked_at
        self.renewed_at = asked_at
        self.valid_until = asked_at + lease_seconds
        self.is_lost = False


class Leases:
    """Every lease of this process, by job id."""

    def __init__(self, lease_seconds: float) -> None:
        self.lease_seconds = lease_seconds
        self._held: dict[int, Held] = {}

    def add(self, jobs: list[Claimed], asked_at: float) -> None:
        """Note what a claim that was sent at *asked_at* returned."""
        for job in jobs:
            self._held[job.id] = Held(job, asked_at, self.lease_seconds)

    def get(self, job: Claimed) -> Held | None:
        """Return the lease of this very delivery, or None."""
        held = self._held.get(job.id)
        return held if held is not None and held.job is job else None

    def drop(self, job: Claimed) -> bool:
        """Forget a lease that was settled or lost; False when it was not held."""
        if self.get(job) is None:
            return False
        return self._held.pop(job.id, None) is not None

    def all(self) -> list[Held]:
        """Return the leases held at this moment."""
        return list(self._held.values())

    def __len__(self) -> int:
        return len(self._held)
