"""
Heartbeat: renews the leases of long jobs, hears of cancels, shows that the worker
lives, elects, and adds what was counted to the charts.

It has a connection of its own, so that neither a slow claim nor a slow settle can let
a lease run out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta

import psycopg

from django_pgqueue.log.subscriptions import DECLARED_EVERY
from django_pgqueue.postgres import health, wake
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues import lease, workers
from django_pgqueue.schedules import ticks
from django_pgqueue.topics import consume, subscribe
from django_pgqueue.topics.sync import still_declared
from django_pgqueue.worker.chores.counting import Counting
from django_pgqueue.worker.chores.leader import Leader
from django_pgqueue.worker.chores.scheduler import OVERDUE, Scheduler
from django_pgqueue.worker.claim.listener import Listener
from django_pgqueue.worker.claim.quarantine import SuspectWatch
from django_pgqueue.worker.lanes.promoter import Promoter
from django_pgqueue.worker.lease.leases import ASK_AGAIN_SECONDS, Held, Leases
from django_pgqueue.worker.service import Service

logger = logging.getLogger("django_pgqueue.worker")

# How often a worker says in its row that it lives, and stands for election.
ROW_INTERVAL_SECONDS = 10.0
LEADER_TERM = timedelta(seconds=25)

# Rows asked about in one statement; how often without a hint, and how often at most:
# whoever notifies "!cancel" in a loop costs no more than this.
CANCEL_ROWS_MAX = 2_000
CANCEL_INTERVAL_SECONDS, CANCEL_INTERVAL_SECONDS_MIN = 1.0, 0.05

# How often it is looked whether somebody issues the ticks of schedules.
SCHEDULES_INTERVAL_SECONDS = 5.0


class Heartbeat(Service):
    """Renews leases that are older than a third of their length."""

    name = "heartbeat"

    def __init__(
        self,
        link: Link,
        *,
        leases: Leases,
        register: Callable[[Cursor], None],
        leader: Leader,
        scheduler: Scheduler,
        promoter: Promoter,
        listener: Listener | None,
        counting: Counting,
        suspect_watch: SuspectWatch | None = None,
        stands: bool = True,
    ) -> None:
        super().__init__(link)
        # Whether it stands for election, and in for the leader.
        self._stands = stands
        self._suspect_watch = suspect_watch
        self._counting = counting
        self._leases = leases
        self._register = register
        self._leader = leader
        self._scheduler = scheduler
        self._promoter = promoter
        self._listener = listener
        self._row_due_at = 0.0
        self._schedules_due_at = 0.0
        self._declared_at = time.monotonic()
        self._cancels_heard_at = 0.0
        self._has_hint = False

    def hint_cancel(self) -> None:
        """Look soon which jobs were asked to stop; any thread may call it."""
        self._has_hint = True
        self.wake.set()

    def tick(self) -> float:
        """Renew what is due, then do what the row needs."""
        since = time.monotonic() - self._cancels_heard_at
        if self._has_hint and since < CANCEL_INTERVAL_SECONDS_MIN:
            return CANCEL_INTERVAL_SECONDS_MIN - since  # One look serves many hints.
        if self._has_hint or since >= CANCEL_INTERVAL_SECONDS:
            self._hear_cancels()
        is_missing = self._renew()
        now = time.monotonic()
        if now >= self._row_due_at:
            self._touch_row()
            self._row_due_at = now + ROW_INTERVAL_SECONDS
        if self._stands:
            self._look_at_schedules(now)
            self._declare_again(now)
        if self._suspect_watch is not None:
            self._suspect_watch.look(self.link)
        self._counting.add_if_due(self.link)
        self._prove_listener()
        if is_missing:
            return ASK_AGAIN_SECONDS
        return min(self._leases.lease_seconds / 6, 1.0)

    def _hear_cancels(self) -> None:
        """Tell the jobs that somebody has asked to stop."""
        had_hint, self._has_hint = self._has_hint, False
        now = time.monotonic()
        uncancelled = [held for held in self._leases.all() if not held.is_cancelled]
        try:
            for start in range(0, len(uncancelled), CANCEL_ROWS_MAX):
                self._ask_for_cancels(uncancelled[start : start + CANCEL_ROWS_MAX])
        except BaseException:
            self._has_hint |= had_hint
            raise
        # Only now: a look that failed is due still.
        self._cancels_heard_at = now

    def _ask_for_cancels(self, some: list[Held]) -> None:
        leases = [(held.job.id, held.job.delivery) for held in some]
        worker = self._leases.worker
        with self.link.cursor() as cursor:
            found = lease.cancel_requests(cursor, worker=worker, leases=leases)
        for held in some:
            if held.job.id in found:
                logger.info(
                    "cancel     job=%d task=%s: asked to stop",
                    *(held.job.id, held.job.task),
                )
                held.cancel()

    def _renew(self) -> bool:
        """Renew old leases; True when some must be asked for again."""
        lease_seconds = self._leases.lease_seconds
        sent_at = time.monotonic()
        old = [
            held
            for held in self._leases.all()
            # A task may have extended it for longer than a lease.
            if not held.is_lost and held.valid_until - sent_at <= lease_seconds * 2 / 3
        ]
        return self._leases.renew(self.link, old)

    def _touch_row(self) -> None:
        connection = self.link.connection
        with connection.cursor() as cursor:
            if not workers.heartbeat(cursor, name=self._leases.worker):
                self._register(cursor)
            with connection.transaction():
                leads = self._stands and workers.lead(
                    cursor, name=self._leases.worker, term=LEADER_TERM
                )
        self._leader.set_leading(leads)
        self._scheduler.set_leading(leads)
        self._promoter.set_leading(leads)

    def _look_at_schedules(self, now: float) -> None:
        """Issue ticks in the place of a leader who does not."""
        if now < self._schedules_due_at or self._scheduler.is_at_work:
            return
        with self.link.cursor() as cursor:
            if ticks.is_overdue(cursor, OVERDUE):
                self._scheduler.stand_in()
        self._schedules_due_at = now + SCHEDULES_INTERVAL_SECONDS

    def _declare_again(self, now: float) -> None:
        """Say what this code still subscribes to and reads: of all workers, not one."""
        if now - self._declared_at < DECLARED_EVERY.total_seconds():
            return
        if subscribe.declared() or consume.declared():
            with self.link.cursor() as cursor:
                still_declared(cursor)
        self._declared_at = now

    def _prove_listener(self) -> None:
        listener = self._listener
        token = None if listener is None else listener.next_token()
        if listener is None or token is None:
            return
        try:
            with self.link.cursor() as cursor:
                wake.prove(cursor, channel=listener.own_channel, token=token)
        except psycopg.errors.ProgramLimitExceeded:
            listener.forget_token()
            # The queue of notifications is full. When its readers have caught up, a
            # server finds that out only when somebody asks how full it is.
            with self.link.cursor() as cursor:
                health.notification_usage(cursor)
            raise
        except Exception:
            listener.forget_token()
            raise
