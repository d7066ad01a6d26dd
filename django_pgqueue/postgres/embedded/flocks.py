"""Locks of files, flock(2), which the kernel drops with the process that holds them."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

if sys.platform != "win32":  # Which has no flock; see refuse_windows().
    import fcntl

POLL_SECONDS = 0.02


def open_lock(path: Path) -> int:
    """Open *path*, and make it if need be; the file descriptor holds no lock yet."""
    # Python's file descriptors are not inherited by programs unless passed on purpose.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def share(fd: int) -> None:
    """Hold the file of *fd* together with others; wait for whoever holds it alone."""
    fcntl.flock(fd, fcntl.LOCK_SH)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold *path* exclusively; wait for whoever holds it."""
    fd = open_lock(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        # Unlocked, not only closed: a fork in another thread may hold a copy.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def try_lock(path: Path) -> int | None:
    """Return a file descriptor that holds *path* exclusively, or None if it is held."""
    fd = open_lock(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def is_held(path: Path) -> bool:
    """Say whether anybody holds *path*, shared or not."""
    fd = try_lock(path)
    if fd is None:
        return True
    os.close(fd)
    return False


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Say whether *condition*, such as a lock's end, came true within *seconds*."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
