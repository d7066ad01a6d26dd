"""
Strays: what a claim without an answer may have leased to this process.

The connection breaks after the claim was sent and before its answer came. If the server
has committed it, jobs are leased to us that we know nothing of: nobody would run them
until their leases end, and that would count as a crash of jobs that never started. So
whatever is leased to us and unknown to us goes back, as if never claimed. The statement
of a lost session may still commit, so that is looked after again until a lease is over.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from contextlib import suppress
from datetime import timedelta

import psycopg

from django_pgqueue.postgres import wake
from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues import lease
from django_pgqueue.worker.lease.leases import Leases
from django_pgqueue.worker.service import is_broken

logger = logging.getLogger("django_pgqueue.worker")

# The second look; each later one is twice as far away as the one before.
AGAIN_SECONDS = 1.0


class Strays:
    """Noted by whoever claims; taken back by the claimer."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        # Held by threads other than the claimer's, from before a claim of theirs until
        # its jobs are noted as held: what is on its way must not be taken for a stray.
        self.claiming = threading.Lock()
        self._noted_at = 0.0
        # The monotonic time at which take_back() should be called next.
        self.due_at = math.inf
        self._pause = AGAIN_SECONDS

    def note(self) -> None:
        """Note that a claim got no answer. Any thread may call it."""
        self._noted_at = self.due_at = time.monotonic()
        self._pause = AGAIN_SECONDS

    def note_if_lost(self, link: Link, error: BaseException) -> None:
        """Note a claim on *link* that ended with *error*, unless that is an answer."""
        # One that says no has leased nothing.
        if not isinstance(error, Exception) or is_broken(link, error):
            self.note()

    @property
    def is_pending(self) -> bool:
        """Whether there may be something to take back, now or soon."""
        return self.due_at < math.inf

    def take_back(self, link: Link) -> int:
        """Hand back what is leased to us and unknown to us; return how many jobs."""
        with self.claiming:
            noted_at = self._noted_at
            known = [(held.job.id, held.job.delivery) for held in self._leases.all()]
            with link.cursor() as cursor:
                found = lease.rescue(
                    cursor,
                    worker=self._leases.worker,
                    running=[],
                    kept=known,
                    lease=timedelta(seconds=self._leases.lease_seconds + AGAIN_SECONDS),
                    message="",
                )
        if noted_at == self._noted_at:
            self._plan_next()
        queues = [job.queue for job in found if not job.is_locked]
        if queues:
            logger.warning(
                "unheard    jobs=%d: leased to us by a claim whose answer was lost, "
                "handed back",
                len(queues),
            )
            self._wake(link, set(queues))
        return len(queues)

    def finish(self, link: Link) -> None:
        """
        Take back what there may be, at the end of the process.

        Waits until a second has passed since the claim, as a rescuer does. If the
        database fails, is_pending stays true, and the supervisor takes them back.
        """
        if self.is_pending:
            with suppress(psycopg.Error), link.turn:
                self.take_back(link)
                time.sleep(max(self._noted_at + AGAIN_SECONDS - time.monotonic(), 0.0))
                self.take_back(link)
                self.due_at = math.inf

    def _plan_next(self) -> None:
        now = time.monotonic()
        # A lease that is written later than this has run out when it is.
        is_over = now - self._noted_at > self._leases.lease_seconds
        self.due_at = math.inf if is_over else now + self._pause
        self._pause *= 2

    def _wake(self, link: Link, queues: set[str]) -> None:
        try:
            with link.cursor() as cursor:
                wake.wake(cursor, queues)
        except psycopg.Error as error:
            # They are back; the poll finds them.
            logger.warning("unheard    queues=%s: no wake, %r", sorted(queues), error)
