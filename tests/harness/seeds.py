"""
Seeds: of the commit, so that each draws plans and stories that no other has drawn.

Whoever fails says how to have the same again: see the mark `seed`.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

FAULTS = "PGQUEUE_FAULTS_SEED"
POLLER = "PGQUEUE_POLLER_FIRST_SEED"

SEEDS = 10_000
WITHOUT_GIT = 7


def seed(variable: str) -> int:
    """Return what the environment says, or else the commit."""
    return int(os.environ.get(variable) or of_commit())


@cache
def of_commit() -> int:
    """Return a number that the next commit has not; without git always the same."""
    try:
        said = subprocess.run(
            ["git", "rev-parse", "--verify", "--quiet", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip()
    except FileNotFoundError:
        said = ""
    return int(said, 16) % SEEDS if said else WITHOUT_GIT


def line() -> str:
    """Return the seeds of this run, for pytest's header."""
    return f"seeds: {FAULTS}={seed(FAULTS)} {POLLER}={seed(POLLER)}"


def again(variable: str, test: str) -> str:
    """Return the command that runs *test* with the seed of this run."""
    return f"{variable}={seed(variable)} python -m pytest '{test}'"
