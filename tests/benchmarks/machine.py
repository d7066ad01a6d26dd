"""Machine: what the figures were taken on."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> dict[str, str]:
    """Return what can be told about this machine."""
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": _line("/proc/cpuinfo", "model name"),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "Python": platform.python_version(),
    }


def load() -> float:
    """Return how many processes wanted to run in the last minute."""
    return round(os.getloadavg()[0], 2)


def _memory() -> str:
    kib = _line("/proc/meminfo", "MemTotal").split()[0]
    return f"{round(int(kib) / 2**20)} GiB"


def _line(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return "unknown"
