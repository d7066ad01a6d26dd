"""
Leader: the one worker of the fleet that does the chores, a loop of its own.

All chores are right with two leaders; the election only avoids noise. The loop opens
its connection when it leads, and closes it when it does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from django.db import connections

from django_pgqueue.postgres.connect import Link
from django_pgqueue.worker.service import LedService

CHORES_INTERVAL_SECONDS = 60.0


class Leader(LedService):
    """Runs each chore once a minute while this worker leads."""

    name = "leader"

    def __init__(self, link: Link, chores: list[Callable[[Link], float]]) -> None:
        super().__init__(link)
        # Each returns how many seconds until it wants to run again.
        self._chores = chores
        self._due_at = [0.0] * len(chores)
        self._hurried = [False] * len(chores)

    def hurry(self, chore: object) -> None:
        """Run a chore soon, if this worker has it and leads."""
        for place, each in enumerate(self._chores):
            if each is chore:
                self._hurried[place] = True
        if self.is_leading:
            self.wake.set()

    def tick(self) -> float:
        """Run the chores that are due."""
        if not self.is_leading:
            self.link.leave()
            # Of chores that use Django's connections.
            connections.close_all()
            return CHORES_INTERVAL_SECONDS
        for place, chore in enumerate(self._chores):
            if self.stopping:
                break
            if self._hurried[place] or time.monotonic() >= self._due_at[place]:
                # Before: one that is hurried while it runs, runs again.
                self._hurried[place] = False
                # Noted before: a chore that fails must not keep the others from
                # running, so it is tried again with the next round.
                self._due_at[place] = time.monotonic() + CHORES_INTERVAL_SECONDS
                pause = chore(self.link)
                self._due_at[place] = time.monotonic() + pause
        if any(self._hurried):
            return 0.0
        nearest = min(self._due_at) - time.monotonic()
        return min(max(nearest, 0.0), CHORES_INTERVAL_SECONDS)
