"""Clock keeper: a chore of the leader that moves the trusted clock on."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from django_pgqueue.postgres import trusted_clock
from django_pgqueue.postgres.connect import Link

logger = logging.getLogger("django_pgqueue.worker")

PAUSE_SECONDS = 60.0

# What is told, and how often: by so much it is behind after a restart, too.
BEHIND_SECONDS_MAX = 3_600
LOG_INTERVAL_SECONDS = 3_600.0


class ClockKeeper:
    """Lets the trusted clock go as fast as this process measures, or catch up."""

    def __init__(self) -> None:
        self._stepped_at: float | None = None
        self._log_at = 0.0

    def __call__(self, link: Link) -> float:
        """Take one step."""
        now = time.monotonic()
        since = now if self._stepped_at is None else self._stepped_at
        with link.cursor() as cursor:
            late = trusted_clock.advance(cursor, timedelta(seconds=now - since))
        self._stepped_at = now
        if late.total_seconds() > BEHIND_SECONDS_MAX and now >= self._log_at:
            self._log_at = now + LOG_INTERVAL_SECONDS
            logger.warning(
                "clock      the database's is %s ahead of the time that workers have "
                "measured: it has jumped, or none has led for so long; nothing of "
                "that time is closed or removed yet",
                timedelta(seconds=round(late.total_seconds())),
            )
        return PAUSE_SECONDS
