"""Durable steps: what an attempt has done is not done again by the next."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection, transaction

from django_pgqueue import signal
from django_pgqueue.models import (
    ArchivedJob,
    DeadLetter,
    DurableStep,
    Job,
    Signal,
)
from django_pgqueue.queues import durable
from django_pgqueue.queues.settle import Ended, retry
from django_pgqueue.tasks import operate
from django_pgqueue.testing import drain
from tests.app.durable_tasks import (
    FAILS,
    LOG,
    NAMES,
    async_steps,
    atomic_steps,
    sleeps,
    steps,
    waits,
    writes,
)
from tests.app.models import Order
from tests.harness.factories import make_leased_job

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _clean():
    LOG.clear()
    FAILS.clear()
    yield
    LOG.clear()
    FAILS.clear()
    NAMES.update(first="first", key="7")


def let_pass(**duration):
    """Let time pass for what sleeps and waits."""
    later = timedelta(**duration)
    for step in DurableStep.objects.filter(until__isnull=False):
        until = step.until - later
        DurableStep.objects.filter(job_id=step.job_id, place=step.place).update(
            until=until
        )
    operate.retry(list(Job.objects.values_list("id", flat=True)))


def test_a_step_that_was_done_is_not_done_again():
    """A later attempt has its result; what stands outside of steps runs again."""
    FAILS.add("outside")
    result = steps.delay(1)
    drain()
    assert ["first", "second", "outside"] == LOG

    FAILS.clear()
    drain(retries=True)

    assert ["first", "second", "outside", "outside", "third"] == LOG
    assert 4 == result.get()


@pytest.mark.django_db(transaction=True)
def test_what_a_step_writes_is_committed_with_its_result():
    """Or neither is: a failure takes back both, and one that comes later none."""
    FAILS.add("write")
    result = writes.delay()
    drain()
    assert (0, 0) == (Order.objects.count(), DurableStep.objects.count())

    FAILS.clear()
    FAILS.add("after")
    drain(retries=True)
    FAILS.clear()
    operate.retry([result.id])
    drain(retries=True)

    assert 1 == Order.objects.count()
    assert 7 == result.refresh().get()


def test_a_changed_step_is_a_dead_letter_and_repeats_nothing():
    """With both names; redriven with the old code, the job goes on."""
    FAILS.add("outside")
    result = steps.delay(1)
    drain()
    NAMES["first"] = "renamed"
    FAILS.clear()
    drain(retries=True)

    assert ["first", "second", "outside"] == LOG
    letter = DeadLetter.objects.get()
    assert "rejected" == letter.reason
    message = letter.errors[-1]["message"]
    assert "call 1 of its context is the step 'renamed'" in message
    assert "it was the step 'first'" in message

    NAMES["first"] = "first"
    operate.retry([letter.id])
    drain()
    assert 4 == result.get()


def test_a_sleep_holds_no_worker_and_burns_no_attempt():
    """The job is scheduled for its end, and goes on from there."""
    result = sleeps.delay()
    drain()

    job = Job.objects.get()
    left = job.visible_at - job.enqueued_at
    assert timedelta(days=2.99) < left < timedelta(days=3.01)
    assert (0, "scheduled") == (job.attempt, result.status)

    let_pass(days=2)
    drain()
    assert ["before"] == LOG
    let_pass(days=1, minutes=1)
    drain()

    assert (["before", "after"], "slept") == (LOG, result.get())
    assert 1 == ArchivedJob.objects.get().attempt


def test_a_signal_is_waited_for():
    """The job is due at once then, and has the payload; each is taken once."""
    result = waits.delay("7")
    drain()
    assert "scheduled" == result.refresh().status

    signal("confirmed", {"by": "mail"}, key=8)
    drain()
    assert "scheduled" == result.refresh().status
    signal("confirmed", {"by": "mail"}, key=7)
    assert "ready" == result.refresh().status
    drain()
    assert "scheduled" == result.refresh().status
    signal("confirmed", "again", key="7")
    drain()

    assert [{"by": "mail"}, "again"] == result.get()
    assert ["before"] == LOG


def test_a_signal_counts_that_commits_after_a_later_one():
    """Its transaction took longer; its id is the lower one."""
    result = waits.delay("7")
    drain()
    signal("confirmed", "later", key="7")
    drain()
    last = Signal.objects.get().id
    Signal.objects.create(id=last - 1, name="confirmed", key="7", payload="earlier")
    operate.retry([result.id])
    drain()

    assert ["later", "earlier"] == result.get()


def test_a_wait_ends_with_its_timeout():
    """It returns None then."""
    result = waits.delay("7", "2h")
    drain()
    let_pass(hours=2, minutes=1)
    drain()
    let_pass(hours=1, minutes=1)
    drain()

    assert [None, None] == result.get()


def test_async_tasks_have_the_same_steps():
    """A coroutine is awaited once; a sleep and a wait end the attempt."""
    result = async_steps.delay()
    drain()
    let_pass(hours=1, minutes=1)
    drain()
    signal("go", "gone", key=1)
    drain()

    assert [1, "gone"] == result.get()
    assert ["fetch", "outside", "outside", "outside"] == LOG


@pytest.mark.django_db(transaction=True)
def test_a_signal_wakes_after_its_commit_and_not_without():
    """In the caller's transaction."""
    result = waits.delay("7")
    drain()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        _ = signal("confirmed", 1, key="7"), 1 / 0
    assert ("scheduled", 0) == (result.refresh().status, Signal.objects.count())

    with transaction.atomic():
        signal("confirmed", 1, key="7")
        assert "scheduled" == result.refresh().status
    assert "ready" == result.refresh().status


def test_a_job_that_is_about_to_wait_is_due_at_once():
    """It was running when the signal looked for it: its settle finds that out."""
    job = make_leased_job(worker="w")
    with connection.cursor() as cursor:
        durable.store(cursor, job.id, 0, "confirmed", "wait", key="7")
        durable.wake(cursor, "confirmed", "7")
        ended = Ended(
            job.id, job.deliveries, delay_seconds=3_600, gives_attempt_back=True
        )
        retry(cursor, worker="w", ended=[ended])

    row = Job.objects.get(id=job.id)
    assert row.leased_by is None
    assert row.visible_at - row.enqueued_at < timedelta(minutes=1)
    assert durable.SIGNALLED not in row.headers


def test_an_atomic_task_has_no_steps():
    """The message says why, and what to do."""
    atomic_steps.delay()
    drain()

    job = Job.objects.get()
    assert "Declare it without" in job.errors[-1]["message"]
    assert [] == LOG
