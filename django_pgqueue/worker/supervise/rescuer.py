"""
Rescuer: takes back what a dead child held, in milliseconds instead of a lease.

The supervisor knows which jobs the child's threads were running, from shared memory,
and hands both kinds back at once: what ran as a crash, what was only claimed as if
never claimed. It does so once more a second later: a statement of the dead client may
still commit on the server.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import psycopg

from django_pgqueue.log import positions
from django_pgqueue.log.publish import HINT as TOPIC_HINT
from django_pgqueue.postgres import wake
from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues import lease, workers

logger = logging.getLogger("django_pgqueue.worker")

AGAIN_SECONDS = 1.0
RETRY_SECONDS = 1.0


@dataclass(slots=True)
class Lost:
    """A child that died, and what it was doing."""

    worker: str
    running: list[tuple[int, int]]  # (job id, delivery); empty: nothing crashed.
    message: str
    died_at: float = field(default_factory=time.monotonic)
    due_at: float = 0.0
    rescues: int = 0
    # Who may take what was rescued, and has not been told.
    unwoken: set[str] = field(default_factory=set)


class Rescuer:
    """Called by the supervisor between its waits; holds no connection in between."""

    def __init__(
        self,
        link: Link,
        lease: timedelta,
        on_crashed: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Make it.

        Args:
            link: Open while run() needs it.
            lease: The longest that a child takes.
            on_crashed: Called when jobs came back that are to run alone.
        """
        self._link = link
        self._lease = lease
        self._on_crashed = on_crashed
        self._lost: list[Lost] = []

    def add(self, lost: Lost) -> None:
        """Note a child that has just died."""
        self._lost.append(lost)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to take back."""
        return not self._lost

    def seconds_until_due(self) -> float | None:
        """Return when run() should be called next; None: no need."""
        if not self._lost:
            return None
        return max(min(lost.due_at for lost in self._lost) - time.monotonic(), 0.0)

    def run(self) -> None:
        """Take back what is due; what fails is tried again until leases end."""
        now = time.monotonic()
        try:
            for lost in [item for item in self._lost if item.due_at <= now]:
                self._rescue(lost)
        except psycopg.Error as error:
            logger.error("failed     loop=rescuer error=%s", str(error).strip())
            for lost in self._lost:
                lost.due_at = max(lost.due_at, now + RETRY_SECONDS)
        finally:
            # Nothing is connected when the supervisor forks.
            self._link.drop()
        # Leases that have run out are claimed as any due row is.
        past = now - self._lease.total_seconds() - AGAIN_SECONDS
        self._lost = [item for item in self._lost if item.died_at > past]

    def _rescue(self, lost: Lost) -> None:
        with self._link.cursor() as cursor:
            found = lease.rescue(
                cursor,
                worker=lost.worker,
                running=lost.running,
                lease=self._lease + timedelta(seconds=AGAIN_SECONDS),
                message=lost.message,
            )
            rescued = [job for job in found if not job.is_locked]
            # Kept, since another try would find nothing that this one has rescued.
            lost.unwoken.update(job.queue for job in rescued)
            topics = positions.lose(cursor, [lost.worker])
            lost.unwoken.update(TOPIC_HINT + topic for topic in topics)
            workers.forget(cursor, [lost.worker])
            if any(job.crashed for job in rescued):
                self._on_crashed()
            wake.wake(cursor, lost.unwoken)
            lost.unwoken.clear()
        lost.rescues += 1
        lost.due_at = time.monotonic() + AGAIN_SECONDS
        if lost.rescues > 1 and len(rescued) == len(found):
            self._lost.remove(lost)
        if rescued or lost.rescues == 1:
            logger.warning(
                "rescued    worker=%s crashed=%d handed_back=%d",
                lost.worker,
                sum(job.crashed for job in rescued),
                sum(not job.crashed for job in rescued),
            )
