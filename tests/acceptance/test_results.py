"""Results: who waits for a job returns when a worker says that it has ended."""

from __future__ import annotations

import re
import threading

import pytest
from asgiref.sync import async_to_sync
from django.db import connections

from django_pgqueue import JobFailed
from django_pgqueue.queues.waited import OUTPUT_HINT, ids_of
from django_pgqueue.tasks import waiting
from django_pgqueue.tasks.result import JobResult
from tests.app import control_tasks, crash_tasks
from tests.harness.waiting import patience, wait_for
from tests.harness.worker_process import PATIENCE_SECONDS, enqueue


@pytest.fixture(autouse=True)
def _only_told(monkeypatch):
    """Who is told looks once after his announcement, and then not for an hour."""
    monkeypatch.setattr(waiting, "_ears", {})
    monkeypatch.setattr(waiting, "TOLD_PAUSES_SECONDS", ())
    monkeypatch.setattr(waiting, "TOLD_PAUSE_SECONDS_MAX", 3_600.0)
    # A worker that says it has started may not listen yet.
    monkeypatch.setattr(waiting, "ANNOUNCE_SECONDS", 1.0)


def waits():
    """Return what this process waits for."""
    return [wait for ear in waiting._ears.values() for wait in list(ear._waits)]


def returns(call):
    """Run *call* in a thread; return a function that joins it and gives its outcome."""
    outcome = []

    def run():
        try:
            outcome.append(call())
        except JobFailed as error:
            outcome.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def joined():
        join(thread)
        return outcome[0]

    return joined


def join(thread):
    """Join a thread that waits for what it is told."""
    thread.join(PATIENCE_SECONDS * patience())
    untold = waits()
    for wait in untold:  # He would outlive this test.
        wait.tell(wait.ids)
    thread.join()
    assert not untold, "he was not told"


def wait_until_heard(the_ledger):
    """Return once the worker has noted for what somebody waits."""

    def is_noted():
        payloads = {entry.note for entry in the_ledger.entries("waited")}
        noted = {
            key for each in payloads for key in [*ids_of(each), f"{OUTPUT_HINT}{each}"]
        }
        asked = waits()
        return asked and all(wait.hears and wait.ids.keys() <= noted for wait in asked)

    wait_for(is_noted, PATIENCE_SECONDS, "the worker has heard of the wait")


def get(job):
    return JobResult(job).get()


def aget(job):
    return async_to_sync(JobResult(job).aget)()


def assert_matches(pattern, outcome):
    assert re.search(pattern, str(outcome))


@pytest.mark.parametrize("get", [get, aget])
def test_get_returns_at_the_end_of_the_job(start_worker, the_ledger, gate, get):
    """It looks at nothing by itself."""
    (job,) = enqueue(crash_tasks.record_through_gate, gate=str(gate))
    start_worker()
    joined = returns(lambda: get(job))
    wait_until_heard(the_ledger)

    gate.touch()

    assert joined() is None


@pytest.mark.parametrize(
    "task, outcome",
    [
        (control_tasks.atomic_through_gate, "None"),
        (crash_tasks.fail_recorded, "is dead .exhausted.*attempt 3"),
    ],
    ids=["atomic", "dead"],
)
def test_every_end_is_told(start_worker, the_ledger, gate, task, outcome):
    """That of an atomic job, which settles itself, and that after three attempts."""
    (job,) = enqueue(task, gate=str(gate))
    start_worker()
    joined = returns(lambda: get(job))
    wait_until_heard(the_ledger)

    gate.touch()

    assert_matches(outcome, joined())
