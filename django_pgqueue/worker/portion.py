"""
Portion: how many rows a statement takes, which somebody may end for its time.

The role of a worker may have a statement_timeout. A statement over so many rows that it
takes longer would be sent again, and cancelled again, for ever. So the next one takes
half as many, down to one; and twice as many again after a while, up to what is usual.
"""

from __future__ import annotations

import time

# How long it stays as small as it has become.
HOLD_SECONDS = 30.0


class Portion:
    """The rows of one kind of statement."""

    def __init__(self, most: int) -> None:
        self._most = self._rows = most
        self._grow_at = 0.0

    @property
    def rows(self) -> int:
        """How many rows the next statement may take."""
        if self._rows < self._most and time.monotonic() >= self._grow_at:
            self._rows = min(2 * self._rows, self._most)
            self._hold()
        return self._rows

    def shrink(self, rows: int) -> None:
        """Note that a statement over *rows* rows was cancelled."""
        self._rows = max(min(self._rows, rows) // 2, 1)
        self._hold()

    def _hold(self) -> None:
        self._grow_at = time.monotonic() + HOLD_SECONDS
