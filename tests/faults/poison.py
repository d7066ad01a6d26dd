"""Poison: what a job had better not do to its process. Each kind is one function."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

FORKS = 20

RECURSION_DEPTH = 200_000

# Longer than any run, shorter than for ever.
THREAD_SECONDS = 600.0


def hold_interpreter(seconds: float) -> None:
    """Hold the lock of the interpreter in a C function, as a long regex does."""
    # PyDLL, unlike CDLL, does not let go of the lock during the call.
    ctypes.PyDLL(None).usleep(ctypes.c_uint(int(seconds * 1_000_000)))


def _exit() -> None:
    sys.exit(5)


def _exit_at_once() -> None:
    os._exit(7)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _segfault() -> None:
    ctypes.string_at(0)


def _too_much_memory() -> None:
    bytearray(1 << 60)


def _forks() -> None:
    """Leave a few children behind that end by themselves, and reap none."""
    for _ in range(FORKS):
        if os.fork() == 0:
            os._exit(0)


def _thread() -> None:
    threading.Thread(target=time.sleep, args=(THREAD_SECONDS,), daemon=True).start()


def _recursion() -> None:
    """Run through the C stack, where Python cannot see it."""
    sys.setrecursionlimit(RECURSION_DEPTH * 2)

    def down(depth: int) -> int:
        return max([depth], key=lambda n: down(n + 1) if n < RECURSION_DEPTH else n)

    down(0)


def _environment() -> None:
    os.environ["PGQUEUE_FAULTS_LEAK"] = "1"


def _monkeypatch() -> None:
    os.path.samefile = None  # type: ignore[assignment]


KINDS: dict[str, Callable[[], None]] = {
    "exit": _exit,
    "exit_at_once": _exit_at_once,
    "kill": _kill,
    "segfault": _segfault,
    "memory": _too_much_memory,
    "forks": _forks,
    "thread": _thread,
    "recursion": _recursion,
    "environment": _environment,
    "monkeypatch": _monkeypatch,
}

# What must become of each: succeeded, or the reason of its dead letter. Where two
# stand, both are right: what a stack that overflows does depends on the Python.
ENDS: dict[str, tuple[str, ...]] = {
    "exit": ("exhausted",),
    "exit_at_once": ("worker_lost",),
    "kill": ("worker_lost",),
    "segfault": ("worker_lost",),
    "memory": ("exhausted",),
    "recursion": ("worker_lost", "exhausted"),
}
