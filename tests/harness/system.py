"""What a test needs of the machine beyond PostgreSQL and Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

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
    found = next(filter(None, map(_found, candidates)), None)
    if found is None:
        skip_or_fail(f"{' or '.join(candidates)} is not on this machine: {reason}")
    return found


def _found(candidate: str) -> Path | None:
    name = shutil.which(candidate) or candidate
    return Path(name) if Path(name).exists() else None


def skip_or_fail(message: str) -> NoReturn:
    """Skip the test, since this machine lacks something; with REQUIRE_ALL, fail it."""
    if os.environ.get("PGQUEUE_REQUIRE_ALL") == "1":
        pytest.fail(f"{message} (PGQUEUE_REQUIRE_ALL=1)")
    pytest.skip(message)


# Read by wrong_clock.c.
CLOCK_WRONG = "PGQUEUE_TEST_CLOCK_WRONG"
SOURCE = Path(__file__).with_name("wrong_clock.c")


def wrong_clock(folder: Path, seconds: int) -> dict[str, str]:
    """
    Return the environment of a process whose clock is *seconds* fast.

    Args:
        folder: For the library that does it, which a C compiler makes.
        seconds: Below 0: slow.
    """
    library = folder / "wrong_clock.so"
    if not library.exists():
        new = library.with_suffix(f".{os.getpid()}")
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(new), str(SOURCE)]
        subprocess.run(command, check=True, timeout=60)
        new.rename(library)
    return {"LD_PRELOAD": str(library), CLOCK_WRONG: str(seconds)}
