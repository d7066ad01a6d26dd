"""
Floors of lanes: from where on each has something left, as one promoter has seen it.

A promotion looks for the first parked job of a lane, and counts those that were let
through. While somebody holds a snapshot, what has left the lane cannot be vacuumed, and
both would walk over all of it, longer with each job. From its floor on, a promotion
walks over what has left since the last one.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import NamedTuple

from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.lanes import NO_FLOOR, Floor, Horizon, Promoted, Stored

# Lanes remembered: those that were promoted last.
LANES_MAX = 1_000

# After which all of a lane is looked at again. By then what somebody's own SQL has put
# below a floor is found, such as a job with an id of his choice.
LASTS_SECONDS = 60.0

# The horizon is looked at after so many jobs, and not more often than that: it costs
# two statements, and what is above it is walked over.
LOOK_JOBS = 64
LOOK_SECONDS = 0.1

ID_MAX = 2**63 - 1


class Kept(NamedTuple):
    """A floor, and until when it is used, by the monotonic clock."""

    floor: Floor
    until: float


class Seen(NamedTuple):
    """What a promotion has seen of a floor; None: nothing."""

    promotion: int | None
    id: int | None
    due_at: datetime | None


class LaneFloors:
    """Floors of the lanes that one connection promotes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._horizon = Horizon()
        self._connection: object = None
        self._jobs = 0
        self._look_at = 0.0

    def of(self, cursor: Cursor, lanes: Collection[str]) -> list[Floor]:
        """
        Return the floor of each of *lanes*.

        Another connection than before has none: its server may have forgotten what the
        last one had committed.
        """
        if self._connection is not cursor.connection:
            self._kept.clear()
            self._horizon = Horizon()
            self._connection = cursor.connection
        return [self._floor(name) for name in lanes]

    def learn(self, cursor: Cursor, lanes: Collection[str], promoted: Promoted) -> None:
        """Take what a promotion from of() has seen; then look at the horizon."""
        # As it was known before the promotion: what commits later may be below.
        upto = self._horizon.upto
        until = time.monotonic() + LASTS_SECONDS
        empty = Seen(None, None, None) if upto is None else Seen(None, ID_MAX, upto.at)
        seen = dict(zip(promoted.floored, _seen_by(promoted), strict=True))
        for name in lanes:
            floor, lasts_until = self._kept.pop(name, Kept(NO_FLOOR, until))
            floor = _raised(floor, seen.get(name, empty), upto)
            self._kept[name] = Kept(floor, lasts_until)
        while len(self._kept) > LANES_MAX:
            self._kept.popitem(last=False)
        self._jobs += promoted.jobs
        now = time.monotonic()
        if self._jobs >= LOOK_JOBS and now >= self._look_at:
            self._horizon.look(cursor)
            self._jobs, self._look_at = 0, now + LOOK_SECONDS

    def _floor(self, name: str) -> Floor:
        kept = self._kept.get(name)
        if kept is None:
            return NO_FLOOR
        if kept.until < time.monotonic():
            del self._kept[name]
            return NO_FLOOR
        return kept.floor


def _seen_by(promoted: Promoted) -> Iterator[Seen]:
    return map(Seen, promoted.promotions, promoted.ids, promoted.dues)


def _raised(floor: Floor, seen: Seen, upto: Stored | None) -> Floor:
    """Return *floor* with what was seen from it on, no further than *upto*."""
    promotion, first_id, due_at = floor
    if seen.promotion is not None:
        promotion = seen.promotion
    if upto is not None and seen.id is not None:
        first_id = min(seen.id, upto.id + 1)
    if upto is not None and seen.due_at is not None:
        due_at = min(seen.due_at, upto.at)
    return Floor(promotion, first_id, due_at)
