"""
Book: every start and every return of a job, in a file beside the database.

Records of a few bytes, since the book must not be what slows the jobs down. One
O_APPEND write each, so a kill leaves whole records behind.
"""

from __future__ import annotations

import os
import struct
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from tests.faults.ledger import FOLDER

RECORD = struct.Struct("<qiB")  # Job, process, what happened.
STARTED, RETURNED = 0, 1

NAME = "executions"

_open_files: dict[int, int] = {}


def write(job: int, event: int) -> None:
    """Note that a job has started, or returned, in this process."""
    pid = os.getpid()
    file = _open_files.get(pid)
    if file is None:
        path = Path(os.environ[FOLDER]) / NAME
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = _open_files[pid] = os.open(path, flags, 0o600)
    os.write(file, RECORD.pack(job, pid, event))


class Execution(NamedTuple):
    """One start of a job."""

    job: int
    pid: int
    has_returned: bool


class Book:
    """Reads what was noted, from where it stopped the last time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._place = 0
        # By job, the processes that started it, in their order.
        self._starts: defaultdict[int, list[int]] = defaultdict(list)
        self._returned: set[tuple[int, int]] = set()
        self.starts_by_pid: Counter[int] = Counter()

    def read(self) -> None:
        """Read what is new."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._place)
            data = file.read()
        whole = len(data) - len(data) % RECORD.size
        self._place += whole
        for job, pid, event in RECORD.iter_unpack(data[:whole]):
            if event == STARTED:
                self._starts[job].append(pid)
                self.starts_by_pid[pid] += 1
            else:
                self._returned.add((job, pid))

    def jobs(self) -> set[int]:
        """Return every job that has started."""
        return set(self._starts)

    def repeated(self) -> list[Execution]:
        """Return every execution after which the same job was started again."""
        return [
            Execution(job, pid, (job, pid) in self._returned)
            for job, starts in self._starts.items()
            for pid in starts[:-1]
        ]
