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
from django_pgqueue.runs import schedules, ticks
from django_pgqueue.runs.schedules import ScheduleRow
from django_pgqueue.schedules.issue import Issued, issue, reckon, wake_for
from django_pgqueue.tasks.registry import find_sender
from django_pgqueue.worker.service import Service, is_broken

logger = logging.getLogger("django_pgqueue.worker")

# Without a hint that a schedule was changed, it is looked so often.
LOOK_SECONDS = 5.0

# Who does not lead takes over when a tick is so late, and then goes on for so long.
OVERDUE = timedelta(seconds=2)
STAND_IN_SECONDS = 15.0

# All next ticks are reckoned anew so often, and when a scheduler begins.
RECKON_SECONDS = 3_600.0

# A schedule whose tick failed is tried again after so long, and what waits for that is
# looked at so often.
PUT_OFF_SECONDS = 30.0
AGAIN_SECONDS = 1.0

# How long a worker that has nothing to issue waits to be woken.
REST_SECONDS = 60.0


class Scheduler(Service):
    """Issues what is due while its worker leads, or while nobody seems to."""

    name = "scheduler"

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._is_leading = False
        self._stands_in_until = 0.0
        # When all next ticks are reckoned anew; and when those that failed are tried.
        self._reckon_at = 0.0
        self._put_off: dict[int, float] = {}

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
            self._reckon_at = 0.0
            return REST_SECONDS
        if time.monotonic() >= self._reckon_at:
            self._reckon_all()
            self._reckon_at = time.monotonic() + RECKON_SECONDS
        self._put_off = {
            row: at for row, at in self._put_off.items() if at > time.monotonic()
        }
        with self.link.cursor() as cursor:
            rows = ticks.due(cursor)
            now, _ = ticks.until_next(cursor)
        for row in rows:
            if self.stopping:
                return 0.0
            if row.id not in self._put_off:
                self._serve(row, now)
        with self.link.cursor() as cursor:
            _, seconds = ticks.until_next(cursor)
        if seconds is None:
            return LOOK_SECONDS
        # What is put off stays due.
        least = AGAIN_SECONDS if self._put_off else 0.0
        return min(max(seconds, least), LOOK_SECONDS)

    def _reckon_all(self) -> None:
        """Say anew when each is due: the rules of a zone change now and then."""
        with self.link.cursor() as cursor:
            for row in schedules.find_all(cursor):
                if row.has_ticks:
                    reckon(cursor, row)

    def _serve(self, row: ScheduleRow, now: datetime) -> None:
        try:
            self._issue(row, now)
        except ScheduleError:
            with self.link.cursor() as cursor:
                reckon(cursor, row)
        except Exception as error:
            if is_broken(self.link, error):
                raise
            # Of this one: the others must not wait for it.
            logger.exception("failed     schedule=%s", row.name)
            self._put_off[row.id] = time.monotonic() + PUT_OFF_SECONDS

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
