"""A test that hangs, and hears no time-out, ends its process and is named."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator
from contextlib import contextmanager

# How much longer than its time-out a test may take to end, its fixtures included.
ENDING_SECONDS = 120.0


@contextmanager
def ended_if_it_hangs(seconds: float, stderr: int) -> Iterator[None]:
    """
    End this process, unless the block does within *seconds*.

    pytest-timeout raises once, in the main thread: what waits in C, or waits again in
    a fixture, would wait for ever, and nobody would know where. Another process of
    xdist goes on, and says which test it was.

    Args:
        seconds: How long the block may take.
        stderr: The file descriptor that gets the traceback of every thread.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
