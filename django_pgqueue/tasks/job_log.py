"""Job log: what a task writes down about one attempt, within bounds."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

# Of one attempt: half of them are its first lines, and half its latest.
LINES_MAX = 200
LOG_BYTES_MAX = 16_384
LINE_CHARACTERS_MAX = 1_000

# Seconds since the attempt began, and the text.
Line = tuple[float, str]


class JobLog:
    """The lines of an attempt: the first and the latest. Threads share it."""

    __slots__ = ("_began", "_bytes", "_clock", "_first", "_latest", "_lock", "_out")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._first: list[Line] = []
        self._latest: deque[Line] = deque()
        # Of the first lines, and of the latest.
        self._bytes = [0, 0]
        # Of the latest, how many had to go.
        self._out = 0

    def add(self, text: str) -> None:
        """Write a line, which is cut to 1,000 characters."""
        # What PostgreSQL cannot store is shown escaped: NUL, and surrogates.
        text = text[:LINE_CHARACTERS_MAX].replace("\x00", "\\x00")
        text = text.encode(errors="backslashreplace").decode()
        size = len(text.encode())
        with self._lock:
            line = round(self._clock() - self._began, 3), text
            is_first = not self._latest and len(self._first) < LINES_MAX // 2
            if is_first and self._bytes[0] + size <= LOG_BYTES_MAX // 2:
                self._first.append(line)
                self._bytes[0] += size
                return
            self._latest.append(line)
            self._bytes[1] += size
            while self._has_too_many():
                self._bytes[1] -= len(self._latest.popleft()[1].encode())
                self._out += 1

    def _has_too_many(self) -> bool:
        is_full = len(self._latest) > LINES_MAX // 2
        return is_full or self._bytes[1] > LOG_BYTES_MAX // 2

    def lines(self) -> list[Line] | None:
        """Return what is kept, in its order; None: nothing was written."""
        with self._lock:
            left_out: list[Line] = []
            if self._out:
                at = self._latest[0][0] if self._latest else 0.0
                left_out = [(at, f"… {self._out:,} lines are left out …")]
            return [*self._first, *left_out, *self._latest] or None
