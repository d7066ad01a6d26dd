"""
Positions: what a reader remembers of its group's, so that it need not look.

A look at all of them sees every version of their rows that an old snapshot keeps, be it
of a backup or of a report: a few more with each batch. So a reader looks now and then,
and in between goes by what it has seen and done itself. What others have done meanwhile
is found by the claim, which asks the row.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from django_pgqueue.log.closed_days import (
    DAYS_REMEMBERED_SECONDS,
    Days,
    closed_days,
)
from django_pgqueue.log.horizon import Horizons, horizons
from django_pgqueue.log.positions import Claimed, Known
from django_pgqueue.postgres.connect import Link

Answer = TypeVar("Answer")

# How old an answer may be. To ask costs 0.2 ms, and 5 ms with 5,000 publishers.
BOUND_SECONDS = 0.005

# A day is closed once a day; one that is reopened must not be left out for long.
DAYS_SECONDS = DAYS_REMEMBERED_SECONDS


class Bounds:
    """The latest answer; the first who finds it too old asks anew."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._read_at = -BOUND_SECONDS
        self._horizons: Horizons | None = None
        self._days_at = -DAYS_SECONDS
        self._days = Days()
        # What now() had said when it was asked for the days.
        self._days_with: Horizons | None = None

    def now(self, not_before: float = 0.0) -> Horizons:
        """
        Return the bounds of all topics, as they were some milliseconds ago at most.

        Args:
            not_before: And not before this time.monotonic().

        Raises:
            psycopg.Error: The database is away.
        """
        with self._lock:
            now = time.monotonic()
            known = self._horizons
            is_fresh = now - self._read_at < BOUND_SECONDS
            if known is not None and is_fresh and self._read_at >= not_before:
                return known
            known = self._ask(horizons)
            self._read_at, self._horizons = now, known
            return known

    def days(self, *, anew: bool = False) -> Days:
        """
        Return which days are over, as they were some seconds ago at most.

        Or longer ago if nothing was published since: a day that was reopened meanwhile
        has nothing new.

        Args:
            anew: Some seconds ago at most in any case: which have been closed matters.
        """
        with self._lock:
            now = time.monotonic()
            is_old = now - self._days_at >= DAYS_SECONDS
            is_same = self._days_with is not None and self._days_with == self._horizons
            if is_old and (anew or not is_same):
                known = self._horizons
                self._days = self._ask(closed_days)
                self._days_at, self._days_with = now, known
            return self._days

    def _ask(self, question: Callable[[Any], Answer]) -> Answer:
        """
        Ask with a connection that works.

        After any error the next one is new: a reader that fails drops its own alone,
        and this one may be to a server that became a standby.
        """
        try:
            with self._link.cursor() as cursor:
                return question(cursor)
        except BaseException:
            self._link.drop()
            raise

    def drop(self) -> None:
        """Close the connection."""
        with self._lock:
            self._link.drop()


# A look is as old as that at most, or as a poll: somebody may have sought, resumed or
# died without a wake.
LOOK_SECONDS = 1.0

# And as old as that at least, even if something is known to have changed.
LOOK_AGAIN_SECONDS = 0.05


class KnownPositions:
    """The positions of one group, in the order in which they have their turn."""

    def __init__(self, poll_seconds: float) -> None:
        self._old_seconds = min(LOOK_SECONDS, poll_seconds)
        self._free: dict[int, Known] = {}
        self._looked_at = float("-inf")
        self._is_outdated = True
        # Whether there are some that others have, that wait, or that are halted.
        self._has_others = False
        self._wait_until: float | None = None
        # Up to which bound nothing is left in those that are free.
        self._dry_to: int | None = None
        # Of those that are read.
        self.lowest = 0
        # Whether they are of several generations: see sql/unread.sql.
        self.is_merging = False

    @property
    def free(self) -> Sequence[Known]:
        """Those that can be claimed, as far as is known."""
        return list(self._free.values())

    def is_old(self, now: float, woken_at: float) -> bool:
        """Whether to look now; by time.monotonic(), as all of these."""
        age = now - self._looked_at
        if age >= self._old_seconds:
            return True
        if self._wait_until is not None and now >= self._wait_until:
            return True
        is_news = self._has_others and woken_at > self._looked_at
        return (self._is_outdated or is_news) and age >= LOOK_AGAIN_SECONDS

    def saw(self, positions: Sequence[Known], now: float) -> None:
        """Note what a look has found, that began at *now*."""
        self._looked_at, self._is_outdated = now, False
        before = _places(self._free)
        self._free = {each.id: each for each in positions if each.is_free}
        if before != _places(self._free):
            self._dry_to = None
        others = [each for each in positions if not each.is_free and not each.is_halted]
        self._has_others = len(self._free) < len(positions)
        ends = [each.seconds for each in others if each.seconds and each.seconds > 0]
        self._wait_until = now + min(ends) if ends else None
        self.is_merging = any(each.is_merging for each in positions)
        read = [each.position for each in positions if not each.is_halted]
        self.lowest = min(read, default=0)

    def is_dry(self, bound: int) -> bool:
        """
        Whether a claim up to *bound* would find nothing, as it did before.

        Nothing commits below a bound, and these positions have not moved.
        """
        return self._dry_to == bound

    def found_nothing(self, bound: int) -> None:
        """Note that none of the free ones had anything to read up to *bound*."""
        self._dry_to = bound

    def took(self, claimed: Claimed) -> None:
        """Note that it is ours: its turn comes again after the others'."""
        self._free[claimed.id] = self._free.pop(claimed.id)
        # The count of partitions has changed since the look: there are others.
        self._is_outdated |= claimed.is_merging != self.is_merging

    def gave_back(self, position_id: int, tid: str, position: int) -> None:
        """Note where it is now."""
        known = self._free.get(position_id)
        self._dry_to = None
        if known is not None:
            self._free[position_id] = known._replace(tid=tid, position=position)

    def lost(self, position_id: int) -> None:
        """Note that it is somebody else's, or waits: until the next look."""
        self._free.pop(position_id, None)
        self._is_outdated = True

    def forget(self) -> None:
        """Look at once."""
        self._looked_at = float("-inf")

    def wait_seconds(self, now: float, woken_at: float) -> float | None:
        """Return when there is reason to look; None: nothing is waited for."""
        until = [] if self._wait_until is None else [self._wait_until]
        is_news = woken_at > self._looked_at
        if self._is_outdated or (is_news and self._has_others):
            until.append(self._looked_at + LOOK_AGAIN_SECONDS)
        if is_news:
            # Perhaps somebody has sought, and it was not of what is remembered.
            until.append(self._looked_at + self._old_seconds)
        return max(min(until) - now, 0.0) if until else None


def _places(known: Mapping[int, Known]) -> dict[int, tuple[str | None, int]]:
    """Return where each of them is, in the table and in the log."""
    return {each.id: (each.tid, each.position) for each in known.values()}
