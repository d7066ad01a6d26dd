"""
Scheduler: issues ticks when they are due, by the database's clock.

The leader's runs all the time. Another worker's begins when its heartbeat finds a tick
that is overdue: then the leader has died, and its successor is not elected yet. Two at
work do no harm, since a tick is unique.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import psycopg

from django_pgqueue.exceptions import ScheduleError
from django_pgqueue.postgres.connect import Link
from django_pgqueue.schedules import ticks
from django_pgqueue.schedules.issue import issue, reckon, tell, wake_for
from django_pgqueue.schedules.store import ScheduleRow, database_now, find_all
from django_pgqueue.worker.service import LedService, has_lost_link

logger = logging.getLogger("django_pgqueue.worker")

# It looks so often without a hint.
LOOK_SECONDS = 5.0

# After a hint it looks twice: a process sends one hint in 60 ms, for all it changes.
SECOND_LOOK_SECONDS = 0.1

# Who does not lead takes over when a tick is so late, and then goes on for so long.
OVERDUE = timedelta(seconds=2)
STAND_IN_SECONDS = 15.0

# All next ticks are reckoned anew so often, and when a scheduler begins: the rules of a
# zone change now and then.
RECKON_SECONDS = 3_600.0

# A tick that is somebody else's is tried again so soon, then ever later; one that
# fails, as when a trigger refuses its job, so.
AGAIN_SECONDS = 0.1
FAILED_SECONDS, FAILED_SECONDS_MAX = 1.0, 60.0

# How long a worker that has nothing to issue waits to be woken.
REST_SECONDS = 60.0

# For so long after its next try, it is known how often a tick was put off.
REMEMBERED_SECONDS = 300.0


class Backoff:
    """Used by one thread."""

    def __init__(self) -> None:
        # By schedule: which tick was put off, how often before, and until when by
        # time.monotonic().
        self._delays: dict[int, tuple[object, int, float]] = {}

    def add(self, row: ScheduleRow, seconds: float, seconds_max: float) -> float:
        """
        Put a schedule off; return for how many seconds.

        Twice as long each time that the same tick is put off, *seconds_max* at most.
        """
        tick = row.next_tick, row.revision
        before, times, _ = self._delays.get(row.id, (None, 0, 0.0))
        times = times + 1 if before == tick else 0
        pause: float = min(seconds * 2 ** min(times, 10), seconds_max)
        self._delays[row.id] = tick, times, time.monotonic() + pause
        return pause

    def forget(self, row: ScheduleRow) -> None:
        """Note that the tick was issued."""
        self._delays.pop(row.id, None)

    def waiting(self) -> tuple[list[int], float]:
        """Return their ids, and the seconds until the first of them is tried again."""
        now = time.monotonic()
        self._delays = {
            id_: delay
            for id_, delay in self._delays.items()
            if now < delay[2] + REMEMBERED_SECONDS
        }
        waits = {id_: until - now for id_, (_, _, until) in self._delays.items()}
        ids = [id_ for id_, wait in waits.items() if wait > 0]
        return ids, min((waits[id_] for id_ in ids), default=math.inf)


class Scheduler(LedService):
    """Issues what is due while its worker leads, or while nobody seems to."""

    name = "scheduler"

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._stands_in_until = 0.0
        self._reckon_at = 0.0
        self._second_look_at = 0.0
        self._backoff = Backoff()

    @property
    def is_at_work(self) -> bool:
        """Whether it looks for what is due."""
        return self.is_leading or time.monotonic() < self._stands_in_until

    def stand_in(self) -> None:
        """Be told by the heartbeat that a tick is overdue."""
        self._stands_in_until = time.monotonic() + STAND_IN_SECONDS
        self.wake.set()

    def hint(self) -> None:
        """Look soon: a schedule was changed. Of any thread."""
        if self.is_at_work:
            self._second_look_at = time.monotonic() + SECOND_LOOK_SECONDS
            self.wake.set()

    def tick(self) -> float:
        """Issue what is due; return how many seconds until the next."""
        if not self.is_at_work:
            self.link.leave()
            self._reckon_at = 0.0
            return REST_SECONDS
        if time.monotonic() >= self._reckon_at:
            self._reckon_all()
            self._reckon_at = time.monotonic() + RECKON_SECONDS
        but, until_again = self._backoff.waiting()
        with self.link.cursor() as cursor:
            seconds = ticks.until_next(cursor, but)
            if seconds is None or seconds > 0:
                pause = LOOK_SECONDS if seconds is None else seconds
                second = self._second_look_at - time.monotonic()
                return min(
                    *(pause, LOOK_SECONDS, until_again),
                    second if second > 0 else math.inf,
                )
            rows = ticks.due(cursor, but)
            now = database_now(cursor)
        for row in rows:
            if self.stopping:
                break
            self._serve(row, now)
        return 0.0

    def _reckon_all(self) -> None:
        with self.link.cursor() as cursor:
            rows = [row for row in find_all(cursor) if row.has_ticks]
        for row in rows:
            with self._apart(row):
                self._reckon(row)

    def _serve(self, row: ScheduleRow, now: datetime) -> None:
        """Issue a schedule's tick, or reckon when it is due."""
        with self._apart(row):
            is_done = row.next_tick is not None and self._issue(row, now)
            # Nothing is due: its row may say so by an older tz database.
            if is_done or self._reckon(row):
                self._backoff.forget(row)
            else:
                # Another scheduler has it; or somebody has locked its row.
                self._backoff.add(row, AGAIN_SECONDS, LOOK_SECONDS)

    @contextmanager
    def _apart(self, row: ScheduleRow) -> Iterator[None]:
        """Let what is wrong with one schedule keep no other one waiting."""
        try:
            yield
        except Exception as error:
            if has_lost_link(self.link, error):
                raise
            pause = self._backoff.add(row, FAILED_SECONDS, FAILED_SECONDS_MAX)
            self._note(row, error, pause)

    def _issue(self, row: ScheduleRow, now: datetime) -> bool:
        connection = self.link.connection
        try:
            with connection.transaction(), connection.cursor() as cursor:
                issued = issue(cursor, row, now)
        except ScheduleError:
            return False  # It is written down as its next tick is reckoned.
        try:
            with connection.cursor() as cursor:
                wake_for(cursor, issued)
        finally:
            for tick in issued:
                tell(tick, late_seconds=(now - tick.due_at).total_seconds())
        return bool(issued)

    def _reckon(self, row: ScheduleRow) -> bool:
        with self.link.cursor() as cursor:
            return reckon(cursor, row)

    def _note(self, row: ScheduleRow, error: Exception, pause: float) -> None:
        """Say why a schedule's tick could not be issued, in the log and in its row."""
        problem = f"{type(error).__name__}: {str(error).strip()}".split("\n")[0]
        logger.error(
            "failed     schedule=%s: its tick is tried again in %.0f s: %s",
            row.name,
            pause,
            problem,
            exc_info=None if isinstance(error, psycopg.Error) else error,
        )
        with self.link.cursor() as cursor:
            ticks.reckon(cursor, row, row.next_tick, problem)
