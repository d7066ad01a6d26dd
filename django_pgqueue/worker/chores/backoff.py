"""Backoff: schedules whose tick could not be issued, and when each is tried again."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import datetime

from django_pgqueue.schedules.store import ScheduleRow

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
