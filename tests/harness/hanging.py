"""Tests that hang or are cut off: each is named, and fails no other."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator
from contextlib import contextmanager

from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

# How much longer than its time-out a test may take to end, its fixtures included.
ENDING_SECONDS = 120.0

CANCEL_SECONDS_MAX = 5


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


def renewed(connection: BaseDatabaseWrapper) -> bool:
    """
    Give the next test a new connection, where this one is of no more use.

    It is closed where a pooler has taken its server away; and a time-out or Ctrl+C may
    come within a statement, whose end nobody waits for: all that follow would fail.

    Returns:
        Whether a statement was under way.
    """
    raw = connection.connection
    if raw is None:
        return False
    is_busy = raw.info.transaction_status == TransactionStatus.ACTIVE
    if is_busy:
        raw.cancel_safe(timeout=CANCEL_SECONDS_MAX)
    if is_busy or raw.closed:
        raw.close()
        connection.connect()
    return bool(is_busy)
