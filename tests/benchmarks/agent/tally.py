"""
Tally: which jobs ran in this process, and when; read by the command meanwhile.

A file of pairs of 64-bit words: the number of the job, from 1, and the machine's
monotonic clock in nanoseconds. It is mapped, since a write() would let go of the
interpreter's lock and so slow down peers with threads, and only them.
"""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

# The folder for the files of this peer's processes, one each.
FOLDER = "BENCHMARK_TALLY"
JOBS_MAX = 1_000_000  # Of one process; the file is sparse.

WORDS = 2
WORD_BYTES = 8


class Tally:
    """Notes the jobs of this process, from any of its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def note(self, number: int) -> None:
        """Note that job *number* runs now."""
        at = time.monotonic_ns()
        words = self._words or self._open()
        place = WORDS * next(self._places)
        words[place + 1] = at
        words[place] = number

    def _open(self) -> memoryview[int]:
        with self._lock:
            if self._words is None:
                path = Path(os.environ[FOLDER]) / str(os.getpid())
                with path.open("w+b") as file:
                    file.truncate(JOBS_MAX * WORDS * WORD_BYTES)
                    mapped = mmap.mmap(file.fileno(), 0)
                self._words = memoryview(mapped).cast("Q")
            return self._words

    def _forget(self) -> None:
        self._words: memoryview[int] | None = None
        self._places = itertools.count()


note: Callable[[int], None] = Tally().note
