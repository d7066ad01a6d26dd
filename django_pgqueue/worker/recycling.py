"""
Recycling: when a process that runs tasks has done enough, and another takes its place.

For code that leaks: memory, files, whatever a library keeps. The limits are looked at
between jobs, so a job is never ended for them.
"""

from __future__ import annotations

import fcntl
import os
import resource
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

STATM = Path("/proc/self/statm")
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a process may do before it is replaced; None: as much as it likes."""

    jobs: int | None = None
    age_seconds: float | None = None
    memory_bytes: int | None = None  # Resident, what it shares with others included.

    def reached(self, *, jobs: int, age_seconds: float) -> str | None:
        """
        Say which limit this process has reached, for the log; None: none.

        Args:
            jobs: It has run.
            age_seconds: Since it could run the first one.
        """
        if self.jobs is not None and jobs >= self.jobs:
            return f"{jobs:,} jobs"
        if self.age_seconds is not None and age_seconds >= self.age_seconds:
            return f"{age_seconds:.0f} s of age"
        if self.memory_bytes is not None:
            taken = resident_bytes()
            if taken >= self.memory_bytes:
                return f"{taken / MEBIBYTE:,.0f} MiB of memory"
        return None

    def __bool__(self) -> bool:
        return any(
            limit is not None
            for limit in (self.jobs, self.age_seconds, self.memory_bytes)
        )

    def __str__(self) -> str:
        parts = []
        if self.jobs is not None:
            parts.append(f"{self.jobs:,} jobs")
        if self.age_seconds is not None:
            parts.append(f"{self.age_seconds:g} s")
        if self.memory_bytes is not None:
            parts.append(f"{self.memory_bytes / MEBIBYTE:,.0f} MiB of memory")
        return " or ".join(parts)


class Turn:
    """
    Lets one process of a worker recycle at a time.

    A lock on a file that the supervisor makes and its children inherit: whoever holds
    it lets go by dying, however that comes about.
    """

    def __init__(self) -> None:
        # Open for as long as the worker lives.
        self._file, path = tempfile.mkstemp(prefix="pgqueue-turn-")
        Path(path).unlink()

    def take(self) -> bool:
        """Return whether it is this process's turn, until its end."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


def resident_bytes() -> int:
    """
    Return how much memory this process has in RAM.

    Where there is no /proc: the most that it ever had.
    """
    try:
        pages = int(STATM.read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")
