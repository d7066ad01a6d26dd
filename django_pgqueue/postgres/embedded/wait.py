"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_SECONDS = 0.02


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Say whether *condition* came true within *seconds*."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
