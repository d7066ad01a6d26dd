"""Processes: what the operating system says about those of others."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

# Of `ps -o time=`: days-hours:minutes:seconds, of which the first two may be missing.
PS_TIME = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)")

NANOSECONDS = 1e9


def cpu_seconds(pid: int) -> float:
    """Return the processor time that the threads of *pid* have had so far."""
    threads = Path(f"/proc/{pid}/task")
    try:
        # In nanoseconds; /proc/PID/stat counts hundredths of a second.
        told = [(thread / "schedstat").read_text() for thread in threads.iterdir()]
        return sum(int(text.split()[0]) for text in told) / NANOSECONDS
    except OSError:
        return _seconds_of_ps(_ps(pid, "time"))


def resident_bytes(pid: int) -> int:
    """Return the memory of *pid* that is in RAM; what it shares counts too."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return int(_ps(pid, "rss")) * 1_024


def _ps(pid: int, column: str) -> str:
    return subprocess.run(  # noqa: S603
        ["ps", "-o", f"{column}=", "-p", str(pid)],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def _seconds_of_ps(text: str) -> float:
    found = PS_TIME.fullmatch(text)
    assert found, text
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
