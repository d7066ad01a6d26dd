"""Depths: a chore of the leader that counts the queues which may hold so many jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from django_pgqueue.conf import Settings
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.queues import depth
from django_pgqueue.queues.claim import remember_queues


def chores(settings: Settings) -> list[Callable[[Link], float]]:
    """Return what counts the queues of these settings; nothing, if none has a limit."""
    limits = settings.depths_max
    return [Depths(limits)] if limits else []


class Depths:
    """Writes down how many jobs each queue with a limit holds."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._limits = limits
        self._has_rows = False

    def __call__(self, link: Link) -> float:
        """Count; return how many seconds until the next time."""
        connection = link.connection
        if not self._has_rows:
            with link.cursor() as cursor:
                remember_queues(cursor, [*self._limits])
            self._has_rows = True
        began = time.monotonic()
        with connection.transaction(), connection.cursor() as cursor:
            limit(cursor, seconds=depth.COUNT_SECONDS_MAX, plans=Plans.IN_ORDER)
            depth.note(cursor, self._limits)
        return depth.pause_after(time.monotonic() - began)
