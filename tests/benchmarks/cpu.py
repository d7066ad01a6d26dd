"""Processor time of processes, in seconds, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")

# Of what follows the name in /proc/<pid>/stat: proc_pid_stat(5), less the first two.
STATE, SESSION = 0, 3
UTIME, STIME, CUTIME, CSTIME = 11, 12, 13, 14


def of_session(leader: int) -> float:
    """Return what the living processes of a session have used, with dead children."""
    used = 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _fields(int(folder.name))
        if fields and int(fields[SESSION]) == leader:
            used += sum(int(fields[n]) for n in (UTIME, STIME, CUTIME, CSTIME))
    return used / TICKS


def of_backends(pids: Iterable[int]) -> float | None:
    """
    Return what these processes of the server have used.

    None: they are not on this machine.
    """
    used = 0
    for pid in pids:
        fields = _fields(pid)
        if fields is None or not _name(pid).startswith("postgres"):
            return None
        used += int(fields[UTIME]) + int(fields[STIME])
    return used / TICKS


def _fields(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def of_threads(pid: int) -> float:
    """Return what the threads of a process have used so far, in nanosecond steps."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(of_thread(thread) for thread in threads)


def of_thread(folder: Path) -> float:
    """Return what a thread has used, by its folder in /proc; 0 if it has ended."""
    try:
        return int((folder / "schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0


def resident_bytes(pid: int) -> int:
    """Return the memory of *pid* that is in RAM; what it shares counts too."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
