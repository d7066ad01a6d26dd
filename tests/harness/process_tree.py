"""What a process has started, and how to freeze it and let it go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.harness.waiting import wait_for


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, path.read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """Return its children, and theirs."""
    found = children(pid)
    return found + [pid for child in found for pid in descendants(child)]


def tell(pids: Iterable[int], told: signal.Signals) -> None:
    """Send a signal to those that are there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, told)


def freeze(pids: Iterable[int]) -> list[int]:
    """Stop processes; return those that are stopped, and not over."""
    pids = list(pids)
    tell(pids, signal.SIGSTOP)
    wait_for(lambda: all(state(pid) in "TZ" for pid in pids), 30, "they are stopped")
    return [pid for pid in pids if state(pid) == "T"]


@contextmanager
def waking(frozen: list[int]) -> Iterator[None]:
    """Let frozen processes go on when this ends, and wait until they have ended."""
    try:
        yield
        assert all(state(pid) == "T" for pid in frozen), "They have died meanwhile."
    finally:
        tell(frozen, signal.SIGCONT)
        wait_for(
            lambda: all(state(pid) == "Z" for pid in frozen), 60, "they have ended"
        )


def state(pid: int) -> str:
    """Return a process's letter of `ps`; "Z": it is over."""
    with suppress(FileNotFoundError, ProcessLookupError):
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0]
    return "Z"
