"""
The ledger: what tasks really did, in a file beside the database under test.

A task writes a line when it starts and one when it ends. O_APPEND and one write() per
line: lines of many processes never mix, and a SIGKILL leaves whole lines behind.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

PATH = "PGQUEUE_TEST_LEDGER"


class Entry(NamedTuple):
    """One line."""

    event: str
    job: int
    attempt: int
    pid: int
    thread: str
    at: float  # time.monotonic(), one clock for all processes of the machine.
    note: Any


def write(event: str, job: int, attempt: int = 0, note: Any = None) -> None:
    """Add a line, from inside a task."""
    thread = threading.current_thread().name
    values = [event, job, attempt, os.getpid(), thread, time.monotonic(), note]
    line = json.dumps(values) + "\n"
    fd = os.open(os.environ[PATH], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


class Ledger:
    """Reads the file that the tasks of one test write."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self, event: str | None = None) -> list[Entry]:
        """Return the lines written so far, in order; those of one event if named."""
        if not self.path.exists():
            return []
        whole = self.path.read_text().rpartition("\n")[0]
        entries = [Entry(*json.loads(line)) for line in whole.splitlines()]
        return [e for e in entries if event is None or e.event == event]

    def starts(self) -> Counter[int]:
        """Return how often each job was started."""
        return Counter(entry.job for entry in self.entries("start"))

    def repeated(self) -> dict[int, int]:
        """Return the extra starts of each job that was started more than once."""
        return {job: count - 1 for job, count in self.starts().items() if count > 1}
