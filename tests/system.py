"""What a test needs of the machine beyond PostgreSQL and Python."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def require_system(*candidates: str, reason: str) -> Path:
    """
    Return the first of *candidates* that this machine has, else skip the test.

    With PGQUEUE_REQUIRE_ALL=1, as CI sets it, a missing one is a failure: a test that
    is always skipped proves nothing.

    Args:
        candidates: Commands looked up on PATH, or paths.
        reason: What the test needs it for.
    """
    for candidate in candidates:
        found = shutil.which(candidate) or (
            candidate if Path(candidate).exists() else None
        )
        if found:
            return Path(found)
    message = f"{' or '.join(candidates)} is not on this machine: {reason}"
    if os.environ.get("PGQUEUE_REQUIRE_ALL") == "1":
        pytest.fail(f"{message} (PGQUEUE_REQUIRE_ALL=1)")
    pytest.skip(message)
