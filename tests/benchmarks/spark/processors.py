"""Processors: what a run has used of them, with all of its processes."""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")

# Of what follows the name in /proc/<pid>/stat: proc_pid_stat(5), less the first two.
PARENT = 1
UTIME, STIME, CUTIME, CSTIME = 11, 12, 13, 14


def seconds_of(*roots: int) -> float:
    """Return the seconds of these processes, their children's and of dead ones'."""
    fields = dict(_processes())
    wanted, used = set(roots), 0.0
    grown = True
    while grown:
        more = {
            pid for pid, told in fields.items() if int(told[PARENT]) in wanted
        } - wanted
        wanted |= more
        grown = bool(more)
    for pid in wanted & set(fields):
        used += sum(int(fields[pid][n]) for n in (UTIME, STIME, CUTIME, CSTIME))
    return used / TICKS


def _processes() -> list[tuple[int, list[str]]]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            told = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found.append((int(folder.name), told))
    return found
