"""
Scheduler: issues ticks when they are due, by the database's clock.

The leader's runs all the time. Another worker's begins when its heartbeat finds a tick
that is overdue: then the leader has died, and its successor is not elected yet. Two at
work do no harm, since a tick is unique.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta

from django_pgqueue import signals, telemetry
from django_pgqueue.exceptions import ScheduleError
from django_pgqueue.postgres.connect import Link
from django_pgqueue.runs import ticks
from django_pgqueue.runs.schedules import ScheduleRow
from django_pgqueue.schedules.issue import Issued, issue, reckon, wake_for
from django_pgqueue.tasks.registry import find_sender
from django_pgqueue.worker.service import Service

logger = logging.getLogger("django_pgqueue.worker")

# Without a hint that a schedule was changed, it is looked so often.
LOOK_SECONDS = 5.0

# Who does not lead takes over when a tick is so late, and then goes on for so long.
OVERDUE = timedelta(seconds=2)
STAND_IN_SECONDS = 15.0

# How long a worker that has nothing to issue waits to be woken.
REST_SECONDS = 60.0


class Scheduler(Service):
    """Issues what is due while its worker leads, or while nobody seems to."""

    name = "scheduler"

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._is_leading = False
        self._stands_in_until = 0.0

    @property
    def is_at_work(self) -> bool:
        """Whether it looks for what is due."""
        return self._is_leading or time.monotonic() < self._stands_in_until

    def set_leading(self, is_leading: bool) -> None:
        """Be told by the heartbeat whether this worker leads."""
        if is_leading and not self._is_leading:
            self.wake.set()
        self._is_leading = is_leading

    def stand_in(self) -> None:
        """Be told by the heartbeat that a tick is overdue."""
        self._stands_in_until = time.monotonic() + STAND_IN_SECONDS
        self.wake.set()

    def hint(self) -> None:
        """Look soon: a schedule was changed. Any thread may call it."""
        if self.is_at_work:
            self.wake.set()

    def tick(self) -> float:
        """Issue what is due; return how many seconds until the next tick."""
        if not self.is_at_work:
            self.link.drop()
            return REST_SECONDS
        with self.link.cursor() as cursor:
            rows = ticks.due(cursor)
            now, _ = ticks.until_next(cursor)
        for row in rows:
            if self.stopping:
                return 0.0
            self._serve(row, now)
        with self.link.cursor() as cursor:
            _, seconds = ticks.until_next(cursor)
        return LOOK_SECONDS if seconds is None else min(max(seconds, 0.0), LOOK_SECONDS)

    def _serve(self, row: ScheduleRow, now: datetime) -> None:
        try:
            if row.next_tick is None:
                with self.link.cursor() as cursor:
                    reckon(cursor, row)
                return
            self._issue(row, now)
        except ScheduleError:
            with self.link.cursor() as cursor:
                reckon(cursor, row)

    def _issue(self, row: ScheduleRow, now: datetime) -> None:
        connection = self.link.connection
        with connection.transaction(), connection.cursor() as cursor:
            issued = issue(cursor, row, now)
        with connection.cursor() as cursor:
            wake_for(cursor, issued)
        for tick in issued:
            _tell(tick, now)


def _tell(tick: Issued, now: datetime) -> None:
    sender = find_sender(tick.task)
    if tick.job_id is not None:
        telemetry.send(
            signals.job_enqueued,
            sender,
            job_id=tick.job_id,
            task=tick.task,
            queue=tick.queue,
        )
    late = (now - tick.due_at).total_seconds()
    telemetry.ticked(sender, tick, late_seconds=late)
