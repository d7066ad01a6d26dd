"""Waiting for what other processes and threads do, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.01


def wait_for(condition: Callable[[], T], timeout: float = 20.0, what: str = "") -> T:
    """
    Call *condition* until its answer is true, and return that answer.

    For rows that another process writes. Where an event, a queue or a join exists,
    wait for that instead.

    Args:
        condition: Asked about a hundred times a second.
        timeout: Seconds.
        what: What is waited for, for the failure.
    """
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, (
            f"not within {timeout:g} s: {what or condition}; last answer {answer!r}"
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
