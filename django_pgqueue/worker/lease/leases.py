"""
Leases: the jobs that this process holds, from the claim until the settle.

Shared by all loops of a process. Single operations on a dict are atomic in CPython, so
no lock is taken on the way of a job.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from django_pgqueue.queues.claim import Claimed


class Held:
    """One lease, by this process's own clock."""

    __slots__ = (
        "_on_cancel",
        "claimed_at",
        "is_cancelled",
        "is_lost",
        "job",
        "missing_since",
        "renewed_at",
        "valid_until",
    )

    def __init__(self, job: Claimed, sent_at: float, lease_seconds: float) -> None:
        self.job = job
        # Before the claim was sent, so that our end of the lease is never later than
        # the database's. Monotonic seconds.
        self.claimed_at = sent_at
        self.renewed_at = sent_at
        self.valid_until = sent_at + lease_seconds
        self.is_lost = False
        # Since when its row was found to be no longer ours; None: it is.
        self.missing_since: float | None = None
        # Somebody has asked the job to stop.
        self.is_cancelled = job.cancel_requested
        self._on_cancel: Callable[[], None] | None = None

    def when_cancelled(self, call: Callable[[], None]) -> None:
        """
        Call this once when somebody asks the job to stop; at once if it was asked.

        Called in the heartbeat's thread: it must return at once, and not raise.
        """
        self._on_cancel = call
        if self.is_cancelled:
            self._call()

    def cancel(self) -> None:
        """Note that somebody has asked the job to stop."""
        self.is_cancelled = True
        self._call()

    def _call(self) -> None:
        # Both threads may come here; the second finds None.
        with LOCK:
            call, self._on_cancel = self._on_cancel, None
        if call is not None:
            call()


# Of the rare moment when a job is asked to stop; one for all.
LOCK = threading.Lock()


class Leases:
    """Every lease of this process, by job id; and what runs on without one."""

    def __init__(self, lease_seconds: float) -> None:
        self.lease_seconds = lease_seconds
        self._held: dict[int, Held] = {}
        # Jobs that were settled while their task goes on: by its own word, or before
        # it was called. They need no lease, but a stop waits for them.
        self._after: dict[int, Claimed] = {}
        # Of runs of many jobs: the others, by the id of the job that leads.
        self._others: dict[int, list[Held]] = {}
        # Leases that were taken over while their jobs run on, by job id.
        self._lost: dict[int, Held] = {}
        # No lease runs out before this, by our clock.
        self._lapse_at = math.inf

    def add(self, jobs: list[Claimed], sent_at: float) -> list[Claimed]:
        """
        Note what a claim that was sent at *sent_at* returned.

        Returns:
            The jobs whose earlier delivery is still held here. They are not noted, and
            must not start: the caller hands them back.
        """
        known, seconds = self._held, self.lease_seconds
        refused = [job for job in jobs if job.id in known]
        for job in refused:
            self.lose(known[job.id])
        fresh = [job for job in jobs if job not in refused] if refused else jobs
        known.update([(job.id, Held(job, sent_at, seconds)) for job in fresh])
        self._lapse_at = min(self._lapse_at, sent_at + seconds)
        return refused

    def lapsed(self, now: float) -> list[Held]:
        """
        Return the leases that have run out by our clock, but for those known as lost.

        Ours is never later than the database's end, so what is not among them cannot
        be claimed by anybody.
        """
        if now < self._lapse_at:
            return []
        held = [each for each in self.all() if not each.is_lost]
        # Another thread may add one at this moment; this end bounds what that costs.
        ends = (each.valid_until for each in held)
        self._lapse_at = min(ends, default=now + self.lease_seconds)
        return [each for each in held if each.valid_until <= now]

    def lose(self, held: Held) -> None:
        """Note that a lease was taken over: its job runs on, and is not ours."""
        held.is_lost = True
        if self._held.get(held.job.id) is held:
            self._lost[held.job.id] = held

    def lost(self) -> list[Held]:
        """Return the leases that were taken over and whose jobs still run here."""
        return list(self._lost.values()) if self._lost else []

    def get(self, job: Claimed) -> Held | None:
        """Return the lease of this very delivery, or None."""
        held = self._held.get(job.id)
        return held if held is not None and held.job is job else None

    def drop(self, job: Claimed) -> bool:
        """Forget a lease that was settled or lost; False when it was not held."""
        held = self._held.get(job.id)
        if held is None or held.job is not job:
            return False
        if self._others:
            self._others.pop(job.id, None)
        if self._lost:
            self._lost.pop(job.id, None)
        return self._held.pop(job.id, None) is not None

    def lead(self, job: Claimed, others: list[Held]) -> None:
        """Note which jobs are in the run that *job* leads, until it is settled."""
        self._others[job.id] = others

    def others(self, job: Claimed) -> list[Held]:
        """Return the other jobs of the run that *job* leads."""
        return list(self._others.get(job.id, ()))

    def load(self) -> int:
        """Return how many jobs are held, those of one run counted as one."""
        others = list(self._others.values()) if self._others else ()
        return len(self) - sum(map(len, others))

    def apart(self) -> list[Held]:
        """Return the leases held at this moment, of each run the leading one."""
        if not self._others:
            return self.all()
        others = {id(held) for run in list(self._others.values()) for held in run}
        return [held for held in self.all() if id(held) not in others]

    def all(self) -> list[Held]:
        """Return the leases held at this moment."""
        return list(self._held.values())

    def goes_on(self, job: Claimed) -> None:
        """Note that the task of a job goes on although the job is settled."""
        self._after[job.id] = job

    def is_settled(self, job: Claimed) -> bool:
        """Whether the task of this very delivery goes on after its settle."""
        return bool(self._after) and self._after.get(job.id) is job

    def settled(self) -> list[Claimed]:
        """Return the jobs that are settled while their tasks go on."""
        return list(self._after.values())

    def ended(self, job: Claimed) -> None:
        """Forget a job whose task went on after its settle."""
        if self.is_settled(job):
            self._after.pop(job.id, None)

    def __len__(self) -> int:
        return len(self._held) + len(self._after)
