"""Summary: what a process has done since its last line about it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

logger = logging.getLogger("django_pgqueue.worker")

SUMMARY_INTERVAL_SECONDS = 60.0

# What readers of groups count.
CONSUMED_KINDS = ("consumed", "failed", "dead", "halted", "stale")


class Summary:
    """A line or two a minute, if there is something to say."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._due_at = time.monotonic() + SUMMARY_INTERVAL_SECONDS
        self._settled: dict[str, int] = {}
        self._consumed: dict[str, int] = {}

    def log_if_due(
        self,
        now: float,
        settled: Mapping[str, int],
        consumed: Mapping[str, int],
        running: int,
    ) -> None:
        """Log what has been added to these counts, by kind."""
        if now < self._due_at:
            return
        self._due_at = now + SUMMARY_INTERVAL_SECONDS
        before, self._settled = self._settled, dict(settled)
        fresh = {name: settled[name] - before.get(name, 0) for name in settled}
        if any(fresh.values()):
            logger.info(
                "summary    worker=%s succeeded=%d retried=%d dead=%d stale=%d "
                "running=%d",
                self._worker,
                fresh.get("ack", 0),
                fresh.get("retry", 0),
                fresh.get("dead", 0),
                fresh.get("stale", 0),
                running,
            )
        before, self._consumed = self._consumed, dict(consumed)
        read = {name: consumed[name] - before.get(name, 0) for name in consumed}
        if any(read.values()):
            logger.info(
                "summary    worker=%s consumed=%d failed=%d dead=%d halted=%d stale=%d",
                self._worker,
                *(read.get(name, 0) for name in CONSUMED_KINDS),
            )
