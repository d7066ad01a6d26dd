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
