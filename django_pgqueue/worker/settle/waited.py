"""Waited: for which jobs somebody has said that he waits, as this process has heard."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

from django_pgqueue.queues.waited import HINT, ids_of

# How long an id is kept at least, and at most twice as long: who waits still says so
# again before.
KEPT_SECONDS = 45.0

# A stranger who announces made-up ids fills this much and no more, twice. Who waits for
# what is left out finds it by looking.
IDS_MAX = 50_000


class Waited:
    """
    A bounded set of ids. The listener fills it, and the settler asks it.

    There are two: of jobs whose end somebody waits for, and of those whose output.
    Empty, as it is nearly always, it is false.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, hint: str = HINT
    ) -> None:
        self._clock = clock
        self._hint = hint
        self._lock = threading.Lock()
        # Since the last turn, and before it.
        self._new: set[int] = set()
        self._old: set[int] = set()
        self._turned_at = clock()

    def __bool__(self) -> bool:
        return bool(self._new or self._old)

    def note(self, payload: str) -> None:
        """Keep the ids of an announcement."""
        ids = ids_of(payload, hint=self._hint)
        with self._lock:
            self._turn()
            if len(self._new) + len(ids) <= IDS_MAX:
                self._new |= ids

    def take(self, ids: Collection[int]) -> set[int]:
        """Return those of *ids* that somebody waits for, and forget them."""
        with self._lock:
            self._turn()
            found = self._among(ids)
            self._new -= found
            self._old -= found
        return found

    def among(self, ids: Collection[int]) -> set[int]:
        """Return those of *ids* that somebody waits for."""
        if not self:
            return set()
        with self._lock:
            self._turn()
            return self._among(ids)

    def _among(self, ids: Collection[int]) -> set[int]:
        return {n for n in ids if n in self._new or n in self._old}

    def _turn(self) -> None:
        """Forget what was said too long ago. Under the lock."""
        now = self._clock()
        turns = (now - self._turned_at) // KEPT_SECONDS
        if turns:
            self._old = self._new if turns == 1 else set()
            self._new = set()
            self._turned_at = now
