"""
Bounds: up to where logs can be read, asked once for all readers of a process.

A bound stays true however old it is, so readers share one answer for some milliseconds.
So do they what is known of days that are over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from django_pgqueue.log.closed_days import DAYS_REMEMBERED_SECONDS, Days, closed_days
from django_pgqueue.log.horizon import Horizons, horizons
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
