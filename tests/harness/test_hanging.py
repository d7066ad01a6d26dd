"""Tests that hang are ended, and named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


# As what waits in C does: it hears no signal.
DEAF = """
import signal, threading
from tests.harness.hanging import ended_if_it_hangs

signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

def hangs_for_ever():
    with ended_if_it_hangs(0.2, 2):
        threading.Event().wait()

with ended_if_it_hangs(60, 2):
    pass
hangs_for_ever()
"""


def test_a_process_that_hears_nothing_is_ended_and_says_where_it_was():
    """The traceback names the function; one that ended in time costs nothing."""
    done = subprocess.run(
        [sys.executable, "-c", DEAF],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert 1 == done.returncode
    assert "hangs_for_ever" in done.stderr
