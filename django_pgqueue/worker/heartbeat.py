"""
Heartbeat: renews the leases of long jobs, shows that the worker lives, elects.

It has a connection of its own, so that neither a slow claim nor a slow settle can let
a lease run out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta

from django_pgqueue.postgres import wake
from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues import lease, workers
from django_pgqueue.worker.leader import Leader
from django_pgqueue.worker.leases import Held, Leases
from django_pgqueue.worker.listener import Listener
from django_pgqueue.worker.service import Service

logger = logging.getLogger("django_pgqueue.worker")

# How often a worker says in its row that it lives, and stands for election.
ROW_INTERVAL_SECONDS = 10.0
LEADER_TERM = timedelta(seconds=25)

# Rows renewed in one statement.
RENEW_ROWS_MAX = 1_000

# A lease that was locked by somebody is asked for again this soon.
ASK_AGAIN_SECONDS = 0.5


class Heartbeat(Service):
    """Renews leases that are older than a third of their length."""

    name = "heartbeat"

    def __init__(
        self,
        link: Link,
        *,
        worker: str,
        leases: Leases,
        register: Callable[[], None],
        leader: Leader,
        listener: Listener | None,
    ) -> None:
        super().__init__(link)
        self._worker = worker
        self._leases = leases
        self._register = register
        self._leader = leader
        self._listener = listener
        self._row_due_at = 0.0

    def tick(self) -> float:
        """Renew what is due, then do what the row needs."""
        missing = self._renew()
        now = time.monotonic()
        if now >= self._row_due_at:
            self._touch_row()
            self._row_due_at = now + ROW_INTERVAL_SECONDS
        self._prove_listener()
        if missing:
            return ASK_AGAIN_SECONDS
        return min(self._leases.lease_seconds / 6, 1.0)

    def _renew(self) -> bool:
        """Renew old leases; True when some were locked and must be asked again."""
        lease_seconds = self._leases.lease_seconds
        asked_at = time.monotonic()
        old = [
            held
            for held in self._leases.all()
            if not held.is_lost and asked_at - held.renewed_at >= lease_seconds / 3
        ][:RENEW_ROWS_MAX]
        if not old:
            return False
        with self.link.cursor() as cursor:
            renewed = lease.renew(
                cursor,
                worker=self._worker,
                leases=[(held.job.id, held.job.delivery) for held in old],
                lease=timedelta(seconds=lease_seconds),
            )
        missing = [held for held in old if held.job.id not in renewed]
        for held in old:
            if held.job.id in renewed:
                held.renewed_at = asked_at
                held.valid_until = asked_at + lease_seconds
        return self._note_lost(missing)

    def _note_lost(self, missing: list[Held]) -> bool:
        # A row that was missing is locked or lost. Only once its lease has run out by
        # our clock, too, is it lost for certain; until then it is asked for again.
        now = time.monotonic()
        ask_again = False
        for held in missing:
            if self._leases.get(held.job) is not held:
                continue  # Settled meanwhile.
            if now < held.valid_until:
                ask_again = True
                continue
            held.is_lost = True
            logger.warning(
                "lost       job=%d task=%s delivery=%d: its lease was taken over while "
                "it runs here",
                held.job.id,
                held.job.task,
                held.job.delivery,
            )
        return ask_again

    def _touch_row(self) -> None:
        connection = self.link.connection
        with connection.cursor() as cursor:
            if not workers.heartbeat(cursor, name=self._worker):
                self._register()
            with connection.transaction():
                leads = workers.lead(cursor, name=self._worker, term=LEADER_TERM)
        self._leader.set_leading(leads)

    def _prove_listener(self) -> None:
        listener = self._listener
        token = None if listener is None else listener.next_token()
        if listener is None or token is None:
            return
        try:
            with self.link.cursor() as cursor:
                wake.prove(cursor, channel=listener.own_channel, token=token)
        except Exception:
            listener.forget_token()
            raise
