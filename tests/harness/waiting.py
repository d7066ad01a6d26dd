"""Waiting for what other processes and threads do, as long as the load makes it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.01


def patience() -> float:
    """
    Return how many times as long all takes as on an idle machine; 1 or more.

    By those that want a core, for each core: nothing is late that had to wait for one.
    """
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def wait_for(condition: Callable[[], T], timeout: float = 20.0, what: str = "") -> T:
    """
    Call *condition* until its answer is true, and return that answer.

    For rows that another process writes. Where an event, a queue or a join exists,
    wait for that instead.

    Args:
        condition: Asked about a hundred times a second.
        timeout: Seconds on an idle machine; with patience() on this one.
        what: What is waited for, for the failure.
    """
    began = time.monotonic()
    while True:
        answer = condition()
        if answer:
            return answer
        seconds = time.monotonic() - began
        assert seconds < timeout or seconds < timeout * patience(), (
            f"not within {seconds:.1f} s: {what or condition}; last answer {answer!r}"
        )
        time.sleep(POLL_SECONDS)


def wait_until_blocked(cursor: Any, blocked: Any) -> None:
    """
    Return once the server says that *blocked* waits for somebody's lock.

    Args:
        cursor: To ask with; not the one that waits.
        blocked: A psycopg cursor or connection that another thread uses.
    """
    connection = getattr(blocked, "connection", blocked)
    pid = connection.info.backend_pid

    def is_blocked() -> bool:
        cursor.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [pid])
        return bool(cursor.fetchone()[0])

    wait_for(is_blocked, what=f"connection {pid} waits for a lock")
