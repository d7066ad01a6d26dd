"""Window: how many attempts of a task ended of late, and how many failed. Pure."""

from __future__ import annotations

from collections import deque

# A window is counted in so many parts; the oldest goes as a whole.
PARTS = 20


class Window:
    """Counts of the last seconds, by monotonic time; a few numbers, whatever came."""

    def __init__(self, seconds: float) -> None:
        self._part_seconds = seconds / PARTS
        # Of each part its number, how many ended in it, and how many of these failed.
        self._parts: deque[list[int]] = deque()

    def note(self, now: float, *, has_failed: bool) -> None:
        """Count an attempt that ended."""
        number = int(now / self._part_seconds)
        if not self._parts or self._parts[-1][0] < number:
            self._parts.append([number, 0, 0])
        self._parts[-1][1] += 1
        self._parts[-1][2] += has_failed
        self._drop(number)

    def counts(self, now: float) -> tuple[int, int]:
        """Return how many ended in the window, and how many of these failed."""
        self._drop(int(now / self._part_seconds))
        return (
            sum(ended for _, ended, _ in self._parts),
            sum(failed for _, _, failed in self._parts),
        )

    def clear(self) -> None:
        """Forget what came."""
        self._parts.clear()

    def _drop(self, number: int) -> None:
        while self._parts and self._parts[0][0] <= number - PARTS:
            self._parts.popleft()
