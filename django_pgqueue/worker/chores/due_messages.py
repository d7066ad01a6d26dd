"""
Due messages: publishes what publish(run_after=…) was given, at its moment.

A part of the scheduler. Two of them do no harm: a message is taken by one.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg.errors import LockNotAvailable

from django_pgqueue import signals, telemetry
from django_pgqueue.log import scheduled
from django_pgqueue.log.publish import HINT
from django_pgqueue.log.scheduled import Due, Published, Refused
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.wake import wake
from django_pgqueue.schedules.store import ScheduleRow
from django_pgqueue.worker.service import has_lost_link

# For so long after its next try, it is known how often a tick was put off.
REMEMBERED_SECONDS = 300.0


@dataclass(slots=True)
class _Delay:
    next_tick: datetime | None
    revision: int
    times: int
    until: float  # By time.monotonic().


class Backoff:
    """Used by one thread."""

    def __init__(self) -> None:
        self._delays: dict[int, _Delay] = {}

    def add(self, row: ScheduleRow, seconds: float, seconds_max: float) -> float:
        """
        Put a schedule off; return for how many seconds.

        Twice as long each time that the same tick is put off, *seconds_max* at most.
        """
        known = self._delays.get(row.id)
        is_same = known is not None and (known.next_tick, known.revision) == (
            row.next_tick,
            row.revision,
        )
        times = known.times + 1 if known is not None and is_same else 0
        pause: float = min(seconds * 2 ** min(times, 10), seconds_max)
        until = time.monotonic() + pause
        self._delays[row.id] = _Delay(row.next_tick, row.revision, times, until)
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
            if now < delay.until + REMEMBERED_SECONDS
        }
        waits = {id_: delay.until - now for id_, delay in self._delays.items()}
        ids = [id_ for id_, wait in waits.items() if wait > 0]
        return ids, min((waits[id_] for id_ in ids), default=math.inf)


logger = logging.getLogger("django_pgqueue.worker")

# Those that are due are all somebody else's: it looks again so soon.
AGAIN_SECONDS = 0.1


class DueMessages:
    """Used by one loop."""

    def __init__(self) -> None:
        # Up to where the batch before has published; None: begin with the first.
        self._floor: datetime | None = None

    def publish(self, link: Link) -> float:
        """Publish a batch of what is due; return how many seconds until the next."""
        if self._floor is None:
            with link.cursor() as cursor:
                seconds = scheduled.until_next(cursor)
            if seconds is None or seconds > 0:
                return math.inf if seconds is None else seconds
        floor, self._floor = self._floor, None
        batch: list[Due] = []
        published: list[Published] = []
        connection = link.connection
        try:
            with connection.transaction(), connection.cursor() as cursor:
                scheduled.prepare(cursor)
                batch = scheduled.due(cursor, floor=floor)
                if batch:
                    published = scheduled.publish(cursor, [each.id for each in batch])
        except Exception as error:
            if has_lost_link(link, error) or not batch:
                raise
            self._publish_apart(link, batch, error)
            return 0.0
        _tell(link, published)
        if batch:
            self._floor = batch[-1].due_at
        if batch or floor is not None:
            return 0.0
        with link.cursor() as cursor:
            seconds = scheduled.until_next(cursor, free=True)
        return math.inf if seconds is None else max(seconds, AGAIN_SECONDS)

    def _publish_apart(
        self, link: Link, batch: Sequence[Due], error: Exception
    ) -> None:
        """Publish parts of what has failed: what cannot be keeps no other waiting."""
        parts = _parts(batch, error)
        if not parts:
            self._put_off(link, batch, error)
        connection = link.connection
        for part in parts:
            try:
                with connection.transaction(), connection.cursor() as cursor:
                    scheduled.prepare(cursor)
                    published = scheduled.publish(cursor, [each.id for each in part])
            except Exception as of_part:
                if has_lost_link(link, of_part):
                    raise
                self._publish_apart(link, part, of_part)
            else:
                _tell(link, published)

    def _put_off(self, link: Link, batch: Sequence[Due], error: Exception) -> None:
        problem = f"{type(error).__name__}: {str(error).strip()}".split("\n")[0]
        logger.error(
            "failed     topic=%s messages=%d, such as %d: tried again soon: %s",
            batch[0].topic,
            len(batch),
            batch[0].id,
            problem,
        )
        connection = link.connection
        with connection.transaction(), connection.cursor() as cursor:
            scheduled.prepare(cursor)
            scheduled.put_off(cursor, [each.id for each in batch], problem)


def _tell(link: Link, published: Sequence[Published]) -> None:
    """Wake whom messages concern that are committed, and send the signal."""
    names = {queue for each in published for queue in each.queues}
    names |= {f"{HINT}{each.topic}" for each in published if each.has_groups}
    try:
        with link.cursor() as cursor:
            wake(cursor, sorted(names))
    finally:
        for each in published:
            telemetry.send(
                signals.messages_published,
                None,
                topic=each.topic,
                ids=each.ids,
                jobs=each.jobs,
            )


def _parts(batch: Sequence[Due], error: Exception) -> list[Sequence[Due]]:
    """Return by topic, or in halves, what is tried apart; empty: it is put off."""
    topics = sorted({each.topic for each in batch})
    if len(topics) > 1:
        return [[each for each in batch if each.topic == topic] for topic in topics]
    # What refuses one of a topic, or has it locked, does so with all.
    if len(batch) < 2 or isinstance(error, (LockNotAvailable, Refused)):
        return []
    middle = len(batch) // 2
    return [batch[:middle], batch[middle:]]
