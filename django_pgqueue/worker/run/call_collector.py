"""
Call collector: takes the other calls of a run, of those here and from the database.

A worker that is about to run one job of a task with accumulate, the job that *leads*,
takes as many others as the run may have. From then on they are leased as every job is:
the heartbeat renews them, each is settled by its own fence, and a stop or the death of
the process hands each of them back.

The connection is opened when the first run comes.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import psycopg

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import LeaseLost
from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues import lease
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.gather import gather
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.accumulate import Accumulate
from django_pgqueue.tasks.gathered import heed_cancel
from django_pgqueue.tasks.outcome import Performed
from django_pgqueue.tasks.prepare import Prepared
from django_pgqueue.worker.claim.strays import Strays
from django_pgqueue.worker.lease.leases import Held, Leases
from django_pgqueue.worker.service import is_broken
from django_pgqueue.worker.settle.settler import Settlement, Settler

logger = logging.getLogger("django_pgqueue.worker")


class Run:
    """The jobs of one run of a task."""

    def __init__(self, held: Held, others: list[Held], settler: Settler) -> None:
        """
        Make it.

        Args:
            held: The job that leads.
            others: Leases of this process, by their ids.
            settler: Writes the outcomes of the others.
        """
        self.held = held
        self.others = others
        self._settler = settler

    @property
    def other_jobs(self) -> list[Claimed]:
        """The jobs of the others, as they were claimed."""
        return [held.job for held in self.others]

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has asked all of its jobs to stop."""
        return all(held.is_cancelled for held in (self.held, *self.others))

    def when_cancelled(self, call: Callable[[], None]) -> None:
        """Call this when is_cancelled becomes true; as Held.when_cancelled()."""

        def look() -> None:
            if self.is_cancelled:
                call()

        for held in (self.held, *self.others):
            held.when_cancelled(look)

    def settle_others(self, performed: Performed, ends: Sequence[Performed]) -> None:
        """
        Hand over what becomes of the others.

        Args:
            performed: How the job that leads ended. If it was asked to stop, this is
                changed.
            ends: How each of the others ended.
        """
        for held, end in zip(self.others, ends, strict=True):
            if held.is_cancelled:
                heed_cancel(end)
            self._settler.put_soon(Settlement(held.job, end))
        if self.held.is_cancelled and self.others:
            heed_cancel(performed)


@dataclass(slots=True, kw_only=True)
class CallCollector:
    """Makes runs. Any thread may use it."""

    link: Link
    leases: Leases
    settler: Settler
    strays: Strays
    settings: Settings
    _lock: threading.Lock = field(default_factory=threading.Lock)
    # By the id of the job that leads: what was taken out of those that wait here.
    _near: dict[int, list[Claimed]] = field(default_factory=dict)

    def take_near(self, job: Claimed, waiting: deque[Claimed]) -> int:
        """
        Take calls of the key of *job* out of those that wait here to start.

        Call it before another thread can take the next of them.

        Returns:
            How many it took; collect() or hand_back() has them next.
        """
        task = registry.tasks.get(job.task)
        accumulate = None if task is None else task.options.accumulate
        if accumulate is None or job.runs_alone:
            return 0
        found: list[Claimed] = []
        for other in list(waiting):
            if len(found) >= accumulate.size - 1:
                break
            if (
                other.accumulate_key == job.accumulate_key
                and other.task == job.task
                and other.queue == job.queue
                and not other.runs_alone
            ):
                # ValueError: another thread was first.
                with contextlib.suppress(ValueError):
                    waiting.remove(other)
                    found.append(other)
        if found:
            self._near[job.id] = found
        return len(found)

    def hand_back(self, job: Claimed) -> None:
        """Return what was taken for *job*, which does not run, to the queue."""
        for other in self._near.pop(job.id, ()):
            self.settler.put(Settlement(other, None))

    def collect(self, held: Held, prepared: Prepared) -> Run:
        """Return the run that *held* leads; its calls are not read yet."""
        accumulate = prepared.options.accumulate
        assert accumulate is not None
        near = self._near.pop(held.job.id, ())
        others = [own for job in near if (own := self._own(job))]
        others += self._collected(
            held.job, accumulate, accumulate.size - 1 - len(others)
        )
        others.sort(key=lambda other: other.job.id)
        if others:
            self.leases.lead(held.job, others)
        return Run(held, others, self.settler)

    def extend(self, others: list[Held], seconds: float) -> None:
        """
        Let the leases end no sooner than this from now, but for those that are locked.

        Raises:
            LeaseLost: The lease of one of them has run out by our clock.
        """
        sent_at = time.monotonic()
        for held in others:
            if held.is_lost or sent_at >= held.valid_until:
                raise LeaseLost(held.job.id, held.job.delivery)
        with (
            self._lock,
            self.link.turn,
            self.link.steady_cursor() as cursor,
        ):
            renewed = lease.renew(
                cursor,
                worker=self.leases.worker,
                leases=[(held.job.id, held.job.delivery) for held in others],
                lease=timedelta(seconds=seconds),
            )
        for held in others:
            if held.job.id in renewed:
                held.renewed(sent_at, seconds)

    def close(self) -> None:
        """Give the connection back, unless a thread is left behind with it."""
        if self._lock.acquire(blocking=False):
            self.link.leave()
            self._lock.release()

    def _own(self, job: Claimed) -> Held | None:
        """Return the lease of a job that waited here, unless it may not run."""
        held = self.leases.admit(job, time.monotonic(), self.settings)
        if isinstance(held, Held):
            return held
        self.settler.put_soon(Settlement(job, held))
        return None

    def _collected(
        self, job: Claimed, accumulate: Accumulate, limit: int
    ) -> list[Held]:
        if limit <= 0:
            return []
        with self._lock, self.link.turn, self.strays.claiming:
            sent_at = time.monotonic()
            try:
                with self.link.steady_cursor(binary=True) as cursor:
                    jobs = gather(
                        cursor,
                        job,
                        within=accumulate.window,
                        worker=self.leases.worker,
                        limit=limit,
                        lease=timedelta(seconds=self.leases.lease_seconds),
                    )
            except psycopg.Error as error:
                # The run has what it has; the others are gathered by another one.
                logger.warning("ungathered job=%d error=%s", job.id, error)
                if is_broken(self.link, error):
                    self.strays.note()
                    self.link.drop()
                return []
            refused = self.leases.add(jobs, sent_at)
        for other in refused:
            self.settler.put_soon(Settlement(other, None))
        return [held for other in jobs if (held := self.leases.get(other))]
