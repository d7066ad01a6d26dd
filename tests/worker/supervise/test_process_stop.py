"""A process that stops: what it waits for, and what it settles last."""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace

import pytest

from django_pgqueue.conf import parse
from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.models import ArchivedJob, DeadLetter
from django_pgqueue.tasks.outcome import Performed, Succeeded
from django_pgqueue.worker.lease.leases import Slots
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.settle.settler import Settlement, Settler
from django_pgqueue.worker.supervise.process import Process
from tests.app.tasks import noop
from tests.harness.factories import make_job, make_jobs
from tests.worker.conftest import WORKER

LATE = TaskTimeout("it ran too long")


@pytest.fixture
def settler(link, leases):
    return Settler(link, leases)


@pytest.fixture
def process(leases, settler):
    """As much of a process as a stop looks at; nothing runs in its threads."""
    process = Process(
        WorkerOptions(settings=parse({})), WORKER, Slots(multiprocessing, 1)
    )
    process.joins = []
    dispatcher = SimpleNamespace(join=lambda until: process.joins.append(until) or True)
    process._loops = SimpleNamespace(
        leases=leases, settler=settler, dispatcher=dispatcher
    )
    yield process
    process._woken.close()


def test_a_job_that_ignores_its_timeout_is_settled_last(
    process, settler, claim_all, leases, caplog
):
    """Its thread runs on until the process ends: no next attempt runs beside it."""
    make_job(task=noop.name, max_attempts=1)
    (job,) = claim_all()

    process.on_hard_timeout(job, LATE)
    assert (False, True) == (settler.has(job), process._is_done())
    assert leases.get(job)
    process._interrupt_running()
    assert not settler.has(job)

    process._settle_stuck()
    settler.tick()

    assert "timeout" == DeadLetter.objects.get(pk=job.id).reason
    assert process._stop_requested
    assert (
        f"ignored    job={job.id} task={noop.name}: it did not react to its timeout; "
        "its process is replaced"
    ) in caplog.messages


def test_a_job_that_ends_after_its_timeout_says_itself_how(
    process, settler, claim_all, leases
):
    """While its neighbours had the grace to end. One without a lease is let be."""
    make_jobs(2, task=noop.name)
    job, gone = claim_all()
    for each in (job, gone):
        process.on_hard_timeout(each, LATE)
    leases.drop(gone)
    settler.put(Settlement(job, Performed(Succeeded(), None, 20.0)))

    process._settle_stuck()
    settler.tick()

    assert ["succeeded"] == list(ArchivedJob.objects.values_list("state", flat=True))
    assert not DeadLetter.objects.exists()
    assert 0 == settler.counts["stale"]


def test_an_acked_job_that_ignores_its_timeout_is_noted(
    process, settler, claim_all, leases
):
    """It holds no lease; a stop waits for it no longer than for others."""
    make_job(task=noop.name)
    (job,) = claim_all()
    settler.put(Settlement(job, Performed(Succeeded(), None, 0.1), goes_on=True))
    settler.tick()

    process.on_hard_timeout(job, LATE)
    assert process._is_done()
    process._settle_stuck()
    settler.tick()

    assert 0 == len(leases)
    assert "it ran too long" == ArchivedJob.objects.get().errors[-1]["message"]
