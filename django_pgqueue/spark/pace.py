"""
Pace: how many rows a page has, and how long to wait after it.

A page is a statement of its own, so that no snapshot is held for longer than a page
takes: vacuum goes on, and a replica cancels nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# Rows of a page: some tenths of a second at full speed.
PAGE_ROWS_MAX = 50_000

# Bytes of a page in Arrow's layout, kept in memory until Spark has taken them. A task
# keeps two pages: one for Spark, and the one that is being fetched.
PAGE_BYTES_MAX = 33_554_432


class Pace:
    """
    One task's pace.

    Args:
        rows_per_second: Of this task; None: no limit.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        rows_per_second: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rows_per_second
        self._clock = clock
        # When the next page may be read, by the clock.
        self._free_at = clock()
        # At most what a second may have, so that a slow read is no row of bursts.
        self.page_rows = PAGE_ROWS_MAX
        if rows_per_second is not None:
            self.page_rows = max(1, min(PAGE_ROWS_MAX, int(rows_per_second)))

    def took(self, rows: int) -> float:
        """Count *rows* that were read; return the seconds until more may be."""
        if self._rate is None:
            return 0.0
        # Time that Spark took to swallow a page is no credit: there are no bursts.
        now = self._clock()
        self._free_at = max(self._free_at, now) + rows / self._rate
        return self._free_at - now

    def was_too_large(self, rows: int) -> None:
        """Ask for no more than *rows* again: so many were PAGE_BYTES_MAX."""
        self.page_rows = max(1, min(self.page_rows, rows))
