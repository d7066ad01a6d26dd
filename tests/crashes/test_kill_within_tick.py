"""A scheduler is killed between a tick and its job: neither or both are there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections

from django_pgqueue.models import Schedule
from tests.crashes import ticker
from tests.harness.waiting import patience
from tests.harness.worker_process import REPOSITORY

KILLS = 2


@pytest.fixture
def run_ticker(transactional_db, failpoint):
    """Kill KILLS schedulers at a point, one after the other, and let one more live."""

    def run(point):
        Schedule.objects.create(
            name=ticker.NAME,
            task="tests.app.tasks.noop",
            every_seconds=60,
            catch_up="all(1000)",
            overlap="queue",
            ticks_from=datetime.now(UTC).replace(second=0, microsecond=0)
            - timedelta(hours=1),
        )
        databases = {"default": {"NAME": connections["default"].settings_dict["NAME"]}}
        done = subprocess.run(
            [sys.executable, "-m", "tests.crashes.ticker", str(KILLS + 1)],
            cwd=REPOSITORY,
            env={
                **os.environ,
                **failpoint(point, times=KILLS).environment(),
                "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
                "PYTHONPATH": str(REPOSITORY),
                "PGQUEUE_TEST_WORKER": json.dumps(
                    {"databases": databases, "pgqueue": {}}
                ),
            },
            capture_output=True,
            text=True,
            timeout=60 * patience(),
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def test_a_death_before_the_commit_leaves_nothing(run_ticker):
    """And the next scheduler issues all ticks that were due, each with its job."""
    died = [[True, 0, 0, 0, None]] * KILLS
    every = KILLS + 1
    assert run_ticker("tick.inserted") == [*died, [False, every, every, every, every]]


def test_a_death_after_the_commit_leaves_both(run_ticker):
    """Each death leaves one more tick with its job, though no worker was woken."""
    expected = [[n <= KILLS, n, n, n, n] for n in range(1, KILLS + 2)]
    assert run_ticker("tick.committed") == expected
