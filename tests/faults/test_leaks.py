"""The look for leaks: it sees whatever the littering tasks leave."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from django.db import connections

from tests.faults import leaks


@pytest.fixture
def connection(transactional_db):
    """A connection of Django's that nobody has used."""
    connection = connections["default"].copy()
    connection.ensure_connection()
    yield connection
    connection.connection.close()


@pytest.fixture(autouse=True)
def _no_alarm():
    """Put off the alarm that ends a hanging test."""
    before = signal.setitimer(signal.ITIMER_REAL, 0)
    yield
    signal.setitimer(signal.ITIMER_REAL, *before)


@pytest.mark.parametrize("how", leaks.LITTER)
def test_what_is_left_in_a_connection_is_seen(connection, how):
    """Each kind of litter, by the same look."""
    leaks.leave(how, connection)

    assert [] != list(leaks.found(connection))


def test_what_is_left_in_a_process_is_seen(connection):
    """Working directory, recursion limit, alarm."""
    cwd, limit = Path.cwd(), sys.getrecursionlimit()
    try:
        os.chdir("/")
        sys.setrecursionlimit(limit + 1)
        signal.setitimer(signal.ITIMER_REAL, 600)
        seen = list(leaks.found(connection))
    finally:
        sys.setrecursionlimit(limit)
        os.chdir(cwd)

    assert ["an alarm", "the recursion limit", "the working directory"] == seen
