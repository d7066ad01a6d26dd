"""Uniqueness among real processes: one job a key, and no deadlock that need not be."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from django_pgqueue.models import Job
from tests.worker_process import REPOSITORY, _databases

pytestmark = pytest.mark.django_db(transaction=True)

PROCESSES, KEYS = 32, 1_000


def race(way, processes=PROCESSES, keys=KEYS):
    """Run the race; return what became of the calls."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.acceptance.unique_race", way, *map(str, (processes, keys))],
        cwd=REPOSITORY,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
            "PGQUEUE_TEST_WORKER": json.dumps({"databases": _databases({}), "pgqueue": {}}),
        },
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert 0 == ended.returncode, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["single", "bulk", "transactions"])
def test_many_processes_enqueue_the_same_keys(way):
    counts = race(way)
    print(way, counts)
    assert KEYS == counts["created"] == Job.objects.count()
