"""
Rescuer: takes back what a dead child held, in milliseconds instead of a lease.

The supervisor knows which jobs the child's threads were running, from shared memory,
and hands both kinds back at once: what ran as a crash, what was only claimed as if
never claimed. A job whose process was killed because the job ignored its timeout ends
as timed out instead. It does so once more a second later: a statement of the dead
client may still commit on the server.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import psycopg
from django.db import connections

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.log import positions
from django_pgqueue.log.publish import HINT as TOPIC_HINT
from django_pgqueue.postgres import wake
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.queues import lease, workers
from django_pgqueue.tasks.perform import timed_out, timeout_message
from django_pgqueue.tasks.registry import find_task
from django_pgqueue.tasks.settlement import WRITES, ended, kind_of, tell, write

logger = logging.getLogger("django_pgqueue.worker")

AGAIN_SECONDS = 1.0
RETRY_SECONDS = 1.0


@dataclass(slots=True)
class Lost:
    """A child that died, and what it was doing."""

    worker: str
    running: list[tuple[int, int]]  # (job id, delivery); empty: nothing crashed.
    message: str
    # The first of these ignored its timeout, so the process was killed.
    is_late: bool = False
    died_at: float = field(default_factory=time.monotonic)
    due_at: float = 0.0
    rescues: int = 0
    # Who may take what was rescued, and has not been told.
    unwoken: set[str] = field(default_factory=set)


class Rescuer:
    """Called by the supervisor between its waits; holds no connection in between."""

    def __init__(
        self, link: Link, settings: Settings, on_crashed: Callable[[], None]
    ) -> None:
        """
        Make it.

        Args:
            link: Open while run() needs it.
            settings: The worker's.
            on_crashed: Called when jobs came back that are to run alone.
        """
        self._link = link
        self._settings = settings
        # The longest that a child takes.
        self._lease = timedelta(seconds=settings.lease_seconds)
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
        if lost.is_late:
            self._settle_late(lost)
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

    def _settle_late(self, lost: Lost) -> None:
        """Settle the job that ignored its timeout, by the policy of its task."""
        for job_id, delivery in lost.running[:1]:
            with self._link.cursor() as cursor:
                job = lease.find_leased(
                    cursor, worker=lost.worker, job_id=job_id, delivery=delivery
                )
            if job is None:
                continue
            try:
                timeout = find_task(job.task).resolve(job.queue, self._settings).timeout
                error = TaskTimeout(f"{timeout_message(job, timeout)} {lost.message}")
                performed = timed_out(
                    job,
                    self._settings,
                    error,
                    None,
                    is_cancelled=job.cancel_requested,
                )
                row = ended(job, performed, worker=lost.worker, waited=0.0)
                write(
                    WRITES[kind_of(performed)],
                    [row],
                    worker=lost.worker,
                    cursor=self._link.cursor,
                    make_day=self._make_day,
                )
                lost.unwoken.add(job.queue)
                tell(job, performed)
            except psycopg.Error:
                raise
            except Exception:
                # Then it counts as a crash.
                logger.exception("failed     loop=rescuer job=%d", job.id)
            finally:
                # Receivers of signals may have opened some.
                connections.close_all()

    def _make_day(self) -> object:
        with self._link.transaction() as cursor:
            return ARCHIVE.make(cursor)
