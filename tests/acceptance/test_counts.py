"""What real workers have settled stands in the spans of tasks."""

from __future__ import annotations

import os
import signal

import pytest

from django_pgqueue.models import TaskSpan
from django_pgqueue.queues.task_spans import KEPT
from tests.app import crash_tasks, tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, wait_until_final

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def counted(task, seconds, name="succeeded"):
    """Return how many ended so, in spans of a length."""
    rows = TaskSpan.objects.filter(task=task.name, seconds=seconds)
    return sum(rows.values_list(name, flat=True))


def test_every_job_of_two_processes_is_counted_once(start_worker):
    """In spans of each length, by the time that they have stopped."""
    ids = enqueue(crash_tasks.record, 300) + enqueue(tasks.fails_once, 3)
    ids += enqueue(tasks.rejects, 2)
    worker = start_worker(processes=2, threads=2)
    wait_until_final(ids)
    assert 0 == worker.stop()

    for seconds in KEPT:
        assert 300 == counted(crash_tasks.record, seconds)
        assert 3 == counted(tasks.fails_once, seconds, "dead")
        assert 2 == counted(tasks.rejects, seconds, "failed")
    (row,) = TaskSpan.objects.filter(task=tasks.rejects.name, seconds=3_600)
    assert (2, 2) == (sum(row.waits), sum(row.runs))


def test_a_killed_process_has_added_all_but_its_last_seconds(start_worker, the_ledger):
    """And who comes after it adds nothing twice."""
    worker = start_worker(threads=1)
    wait_until_final(enqueue(crash_tasks.record, 50))
    wait_for(
        lambda: 50 == counted(crash_tasks.record, 60), what="all of them are counted"
    )
    (pid,) = {entry.pid for entry in the_ledger.entries("start")}
    os.kill(pid, signal.SIGKILL)
    wait_until_final(enqueue(crash_tasks.record, 7))
    assert 0 == worker.stop()

    assert 57 == counted(crash_tasks.record, 3_600)
