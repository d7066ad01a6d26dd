"""Tests that hang are ended, and named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from django.db import OperationalError, connection

from tests.harness.hanging import renewed
from tests.harness.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]

UNDER_WAY = """
SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)' AND pid = %s
"""

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


@pytest.mark.django_db(transaction=True)
def test_a_test_that_was_cut_off_leaves_a_free_connection(cursor):
    """The statement that nobody waits for is cancelled."""
    connection.ensure_connection()
    pid = connection.connection.info.backend_pid
    connection.connection.pgconn.send_query(b"SELECT pg_sleep(600)")

    def is_under_way():
        return cursor.execute(UNDER_WAY, [pid]).fetchone() == (1,)

    # Before it has begun, the server ignores a cancel.
    wait_for(is_under_way, what="it has begun")
    with pytest.raises(OperationalError, match="already in progress"):
        connection.cursor().execute("SELECT 1")
    assert renewed(connection)
    with connection.cursor() as again:
        again.execute("SELECT 1")
    wait_for(lambda: not is_under_way(), what="it has ended")
