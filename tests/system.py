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


# libfaketime for programs with threads, where Debian and Fedora have it.
FAKETIME = ("lib/*/faketime/libfaketimeMT.so.1", "lib64/faketime/libfaketimeMT.so.1")


def find_faketime() -> Path | None:
    """Return the library that puts the clock of a process wrong; None: none is here."""
    return next((path for glob in FAKETIME for path in Path("/usr").glob(glob)), None)


def require_faketime(reason: str) -> Path:
    """Return libfaketime, else skip the test as require_system() does."""
    found = find_faketime()
    return require_system(str(found or "libfaketime"), reason=reason)


def wrong_clock(library: Path, seconds: int) -> dict[str, str]:
    """Return the environment of a process whose clock is *seconds* fast."""
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{seconds:+d}s",
        # What a process waits for goes on at its pace; and nothing of a process that
        # is killed is left in shared memory.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DISABLE_SHM": "1",
    }
