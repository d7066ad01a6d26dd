"""Streams: who waits for a job is given what it emits, while it runs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from asgiref.sync import async_to_sync
from django.db import connections

from django_pgqueue import JobFailed
from django_pgqueue.models import Job, Output
from django_pgqueue.tasks import waiting
from django_pgqueue.tasks.result import JobResult
from tests.acceptance.test_results import join, wait_until_heard
from tests.app import control_tasks
from tests.app.models import Effect
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _no_ears(monkeypatch):
    """What other tests have left is not heard by."""
    monkeypatch.setattr(waiting, "_ears", {})


@pytest.fixture
def only_told(monkeypatch):
    """Who is told looks once after his announcement, and then not for an hour."""
    monkeypatch.setattr(waiting, "TOLD_PAUSES_SECONDS", ())
    monkeypatch.setattr(waiting, "TOLD_PAUSE_SECONDS_MAX", 3_600.0)
    monkeypatch.setattr(waiting, "ANNOUNCE_SECONDS", 1.0)


class Reading(threading.Thread):
    """Reads a stream to its end, in a thread."""

    def __init__(self, job, *, is_async=False):
        super().__init__(daemon=True)
        self.job, self.is_async = job, is_async
        self.given, self.error = [], None
        self.start()

    def run(self):
        try:
            if self.is_async:
                async_to_sync(self.read)()
                return
            for each in JobResult(self.job).stream():
                self.given.append(each)
        except JobFailed as error:
            self.error = error
        finally:
            connections.close_all()

    async def read(self):
        async for each in JobResult(self.job).astream():
            self.given.append(each)

    @property
    def values(self):
        return [each.value for each in self.given]

    def wait_for(self, *values):
        wait_for(lambda: self.values == list(values), what=f"{values} are read")

    def wait(self):
        join(self)
        return self.values


def opens(gate, number):
    Path(f"{gate}.{number}").touch()


@pytest.mark.usefixtures("only_told")
@pytest.mark.parametrize("is_async", [False, True], ids=["stream", "astream"])
def test_values_come_while_the_task_runs(start_worker, the_ledger, gate, is_async):
    """Told by the worker: who reads looks at nothing by himself."""
    (job,) = enqueue(control_tasks.emits, gate=str(gate))
    start_worker()
    wait_for(Output.objects.exists, what="the job runs")
    reading = Reading(job, is_async=is_async)
    reading.wait_for("first of 1")
    wait_until_heard(the_ledger)

    opens(gate, 1)

    reading.wait_for("first of 1", job)
    opens(gate, 2)
    assert ["first of 1", job, "last"] == reading.wait()
    assert [False] * 3 == [each.is_restart for each in reading.given]
    assert "all" == JobResult(job).get(timeout="0s")


def test_values_of_an_atomic_task_are_told_before_its_commit(start_worker, gate):
    """By another connection than that of the task."""
    (job,) = enqueue(control_tasks.emits_atomically, gate=str(gate))
    start_worker()
    reading = Reading(job)

    reading.wait_for("before")

    assert (1, 0) == (Job.objects.count(), Effect.objects.count())
    opens(gate, 1)
    assert ["before", "after"] == reading.wait()
    assert (0, 1) == (Job.objects.count(), Effect.objects.count())
