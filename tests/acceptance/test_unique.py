"""
Uniqueness among real processes.

Eight of them enqueue the same keys, each in a random order: one job a key, and no
deadlock where an order can avoid it. And what becomes of a key whose job fails, or
whose worker is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from django_pgqueue import Unique
from django_pgqueue.models import ArchivedJob, Job
from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import REPOSITORY, _databases, wait_until_final

pytestmark = pytest.mark.django_db(transaction=True)

PROCESSES = 8

KEYS = {"bulk": 400, "transactions": 100, "late": 50}

DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


def race(way):
    """Run the race; return what became of the calls."""
    told = {"databases": _databases({}), "pgqueue": {}}
    command = ["-m", "tests.acceptance.unique_race", way, PROCESSES, KEYS[way]]
    ended = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=REPOSITORY,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
            "PGQUEUE_TEST_WORKER": json.dumps(told),
        },
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert 0 == ended.returncode, ended.stderr
    return json.loads(ended.stdout)


def deadlocks():
    with connection.cursor() as cursor:
        cursor.execute(DEADLOCKS)
        return cursor.fetchone()[0]


@pytest.mark.slow
@pytest.mark.parametrize("way", KEYS)
def test_many_processes_enqueue_the_same_keys(way):
    """Exactly one job a key, and each caller is told of it."""
    before = deadlocks()

    counts = race(way)

    aborted = counts.pop("TransactionAborted", 0)
    calls = PROCESSES * KEYS[way]
    created = {} if way == "late" else {"created": KEYS[way]}
    assert {**created, "skipped": calls - sum(created.values())} == counts
    assert KEYS[way] == Job.objects.count()
    # In a transaction of their own, callers take keys in an order that nobody can sort.
    if way != "transactions":
        assert (0, 0) == (aborted, deadlocks() - before)


def test_a_late_job_starts_beside_its_callers_and_once_more_for_them(
    start_worker, the_ledger
):
    """An open transaction keeps it from nothing, and what that wrote gets its run."""
    task = crash_tasks.record.using(unique=Unique(by=()))
    late = task.delay()
    Job.objects.update(visible_at=Now() - timedelta(hours=1))
    with transaction.atomic():
        told = task.delay()
        start_worker()
        wait_for(the_ledger.starts, what="it runs while a call is open")

    wait_for(lambda: len(the_ledger.starts()) == 2, what="it runs for the call")
    assert (late.id, "skipped") == (told.id, told.conflict)
    assert [1, 1] == list(the_ledger.starts().values())


@pytest.mark.parametrize("while_", ["queued", "queued|running"])
def test_a_dead_machine_freezes_no_key_longer_than_its_leases(
    start_worker, the_ledger, tmp_path, while_
):
    """Supervisor and all are gone, so nobody takes the job back but its lease's end."""
    gate = tmp_path / "gate"
    task = crash_tasks.record_through_gate.using(unique=Unique(by=(), while_=while_))
    short = {"LEASE_SECONDS": 2, "POLL_INTERVAL_SECONDS": 1}
    dead = start_worker(pgqueue=short)
    job = task.delay(str(gate))
    wait_for(the_ledger.starts, what="it runs")
    dead.signal_group(signal.SIGKILL)
    dead.wait()

    gate.touch()
    at_once = task.delay(str(gate))
    assert ("queued" == while_) == at_once.created
    start_worker(pgqueue=short)
    wait_until_final([job.id, at_once.id])

    assert {"succeeded"} == {*ArchivedJob.objects.values_list("state", flat=True)}
    assert task.delay(str(gate)).created
