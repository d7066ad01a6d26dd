"""Salvage: an attempt that a bug of ours has cut off ends, and so does its lease."""

from __future__ import annotations

import multiprocessing

import pytest

from django_pgqueue.conf import parse
from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.tasks.outcome import Performed, Succeeded
from django_pgqueue.worker.claim.capacity import Prefetch
from django_pgqueue.worker.lease.leases import Slots
from django_pgqueue.worker.run.control import JobServices
from django_pgqueue.worker.run.executor import Executor
from django_pgqueue.worker.settle.settler import Settlement, Settler
from tests.app.tasks import noop
from tests.harness.factories import make_job

BUG = RuntimeError("a bug of ours")
SETTINGS = parse({})


def services(settler, leases):
    """What jobs are run with, as far as a salvage needs it."""
    used = {"settings": SETTINGS, "settler": settler, "leases": leases}
    unused = dict.fromkeys(JobServices.__slots__)
    return JobServices(**{**unused, **used})


@pytest.fixture
def settler(link, leases):
    return Settler(link, leases)


@pytest.fixture
def cut_off(leases, settler):
    """A function that ends an attempt by a bug, and writes what follows."""

    def cut_off(job):
        services(settler, leases).salvage(job, BUG, loop="executor")
        settler.tick()

    return cut_off


def test_the_attempt_has_failed_by_the_policy_of_its_task(cut_off, claim_all, leases):
    """It is tried again while there are attempts, and is a dead letter after them."""
    again, last = (
        make_job(task=noop.name, max_attempts=attempts) for attempts in (5, 1)
    )
    for job in claim_all():
        cut_off(job)

    again.refresh_from_db()
    assert (None, 1) == (again.leased_by, again.attempt)
    assert "a bug of ours" == again.errors[-1]["message"]
    assert "exhausted" == DeadLetter.objects.get(pk=last.pk).reason
    assert 0 == len(leases)


def test_a_job_that_was_acked_first_gets_a_note(cut_off, claim_all, leases, settler):
    """Its task went on after that, so a stop would wait for it."""
    make_job(task=noop.name)
    (job,) = claim_all()
    settler.put(Settlement(job, Performed(Succeeded(), None, 0.1), goes_on=True))
    settler.tick()
    assert 1 == len(leases)

    cut_off(job)

    assert 0 == len(leases)
    assert "a bug of ours" == ArchivedJob.objects.get().errors[-1]["message"]


def test_a_thread_goes_on_after_a_bug_and_its_job_is_settled(
    settler, leases, claim_all, caplog, monkeypatch
):
    """Its slot is free again."""
    make_job(task=noop.name)
    (job,) = claim_all()
    executor = make_executor(settler, leases)

    def take(*args):
        raise BUG

    monkeypatch.setattr(executor, "_take", take)

    executor._start(0, 0, job, 0.0, False)
    settler.tick()

    assert [0] == executor._free
    assert (None, 0) == (Job.objects.get().leased_by, len(leases))
    assert f"failed     loop=executor job={job.id}" in caplog.messages


class NoToken:
    holder = 0


def make_executor(settler, leases):
    """Return as much of an executor as one start takes."""
    executor = object.__new__(Executor)
    executor._services, executor._run_token = services(settler, leases), NoToken
    executor._slots, executor._free = Slots(multiprocessing, 1), []
    executor._prefetch, executor._was_full = Prefetch(1), False
    return executor
