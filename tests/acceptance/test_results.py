"""Results: who waits for a job returns when a worker says that it has ended."""

from __future__ import annotations

import re
import threading
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.db import connections

from django_pgqueue import JobFailed
from django_pgqueue.tasks import looks, waiting
from django_pgqueue.tasks.as_completed import as_completed
from django_pgqueue.tasks.result import JobResult
from tests.app import control_tasks, crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, wait_until_final


@pytest.fixture(autouse=True)
def _only_told(monkeypatch):
    """Who is told looks once after his announcement, and then not for an hour."""
    monkeypatch.setattr(waiting, "_ears", {})
    monkeypatch.setattr(looks, "TOLD_PAUSES_SECONDS", ())
    monkeypatch.setattr(looks, "TOLD_PAUSE_SECONDS_MAX", 3_600.0)


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
        thread.join(60)
        assert not thread.is_alive(), "it was not told"
        return outcome[0]

    return joined


def wait_until_heard():
    """
    Return once the worker has heard of the waits: it has of a later wake.

    That of a queue which is new to it, where it does not look by itself.
    """

    def is_announced():
        waits = [wait for ear in waiting._ears.values() for wait in list(ear._waits)]
        return waits and all(wait.hears for wait in waits)

    wait_for(is_announced, what="the wait is announced")
    wait_until_final(enqueue(crash_tasks.record.using(queue=f"new-{uuid4()}")))


def get(job):
    return JobResult(job).get(timeout="1m")


def aget(job):
    return async_to_sync(JobResult(job).aget)(timeout="1m")


def assert_matches(pattern, outcome):
    assert re.search(pattern, str(outcome))


@pytest.mark.parametrize("get", [get, aget])
@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_get_returns_at_the_end_of_the_job(start_worker, gate, get, pool):
    """It looks at nothing by itself."""
    (job,) = enqueue(crash_tasks.record_through_gate, gate=str(gate))
    start_worker(f"--pool={pool}")
    joined = returns(lambda: get(job))
    wait_until_heard()

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
def test_every_end_is_told(start_worker, gate, task, outcome):
    """That of an atomic job, which settles itself, and that after three attempts."""
    (job,) = enqueue(task, gate=str(gate))
    start_worker()
    joined = returns(lambda: get(job))
    wait_until_heard()

    gate.touch()

    assert_matches(outcome, joined())


def test_a_running_job_that_is_cancelled_has_ended_when_it_stops(start_worker):
    """Its worker says so."""
    (job,) = enqueue(control_tasks.until_cancelled, then="cancel")
    start_worker()
    joined = returns(lambda: get(job))
    wait_until_heard()

    JobResult(job).cancel()

    assert_matches("is cancelled", joined())


def test_many_results_come_as_their_jobs_end(start_worker, gate):
    """They are looked at when they are told, and not before."""
    results = crash_tasks.record_through_gate.bulk([{"gate": str(gate)}] * 10)
    start_worker(threads=12)
    joined = returns(lambda: {each.id for each in as_completed(results, "1m")})
    wait_until_heard()

    gate.touch()

    assert {result.id for result in results} == joined()
