"""drain(): what is due runs here and now, as a worker would run it."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from django_pgqueue import (
    Snooze,
    signals,
    task,
)
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Queue
from django_pgqueue.testing import DRAIN_JOBS_MAX, Drained, drain
from tests.app.models import Order
from tests.app.tasks import (
    Unlucky,
    add,
    fails,
    fails_once,
    make_order,
    noop,
    rejects,
    retries_later,
    snoozes,
)
from tests.harness.factories import make_job

pytestmark = pytest.mark.django_db


def names():
    return sorted(Order.objects.values_list("name", flat=True))


def test_jobs_run_in_the_order_of_a_worker():
    """Highest priority first, then the longest due."""
    for name, priority in [("b", 0), ("c", 0), ("a", 9)]:
        make_order.using(priority=priority).delay(name)

    assert 3 == drain()

    assert ["a", "b", "c"] == list(
        Order.objects.order_by("pk").values_list("name", flat=True)
    )


def test_jobs_of_jobs_run_too():
    """However deep."""

    @task(name="countdown")
    def countdown(number):
        if number:
            countdown.delay(number - 1)

    countdown.delay(5)

    assert 6 == drain()
    assert 6 == ArchivedJob.objects.filter(task="countdown").count()


def test_what_is_not_due_is_left():
    """Scheduled, parked, and everything in a paused queue."""
    noop.using(run_after="1h").delay()
    make_job(visible_at=None)
    Queue.objects.create(name="paused", paused_at="2026-11-20T00:00:00Z")
    make_job(queue="paused")

    assert 0 == drain()
    assert 3 == Job.objects.count()


def test_one_queue_can_be_drained_alone():
    """The others keep their jobs."""
    noop.using(queue="mail").delay()
    left = noop.delay()

    assert 1 == drain("mail")
    assert 0 == drain("mail")
    assert "ready" == left.refresh().status


def test_each_outcome_is_settled_as_a_worker_does():
    """Retries are due later and are not waited for."""
    results = {
        name: enqueue()
        for name, enqueue in {
            "succeeded": lambda: add.delay(1, 2),
            "retrying": fails.delay,
            "later": retries_later.delay,
            "snoozed": snoozes.delay,
            "rejected": rejects.delay,
            "exhausted": fails_once.delay,
            "unknown": lambda: make_job(task="no.such.task"),
            "expired": lambda: noop.using(expires=0).delay(),
        }.items()
    }
    results["unknown"] = type(results["succeeded"])(results["unknown"].pk)

    assert 8 == drain()
    assert 0 == drain()

    assert {
        "succeeded": ("succeeded", 1, None),
        "retrying": ("retrying", 1, None),
        "later": ("retrying", 1, None),
        "snoozed": ("scheduled", 0, None),
        "rejected": ("dead", 1, "rejected"),
        "exhausted": ("dead", 1, "exhausted"),
        "unknown": ("scheduled", 0, None),
        "expired": ("expired", 1, None),
    } == {
        name: (result.status, result.attempt, result.reason)
        for name, result in results.items()
    }
    assert 3 == results["succeeded"].result
    assert "bad luck" == results["exhausted"].errors[0]["message"]
    assert "drain" == results["exhausted"].errors[0]["worker"]


def test_a_task_that_breaks_the_transaction_is_a_failed_attempt():
    """The test's transaction and what was before it are still there."""

    @task(name="breaks", retries=0)
    def breaks():
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")

    Order.objects.create(name="of the test")
    broken, after = breaks.delay(), make_order.delay("after")

    assert 2 == drain()

    assert ("dead", "succeeded") == (broken.status, after.status)
    assert "division by zero" in broken.errors[0]["message"]
    assert ["after", "of the test"] == names()


def test_hooks_of_a_task_run_after_it():
    """Although a TestCase never commits; those of the test itself do not run."""
    ran = []

    @task(name="hooks")
    def hooks():
        transaction.on_commit(lambda: ran.append("plain"))
        with transaction.atomic():
            transaction.on_commit(lambda: ran.append("rolled back"))
            transaction.set_rollback(True)
        transaction.on_commit(lambda: make_order.delay("from a hook"))
        transaction.on_commit(lambda: transaction.on_commit(lambda: ran.append("deep")))
        assert [] == ran

    transaction.on_commit(lambda: ran.append("of the test"))
    hooks.delay()

    assert 2 == drain()

    assert ["plain", "deep"] == ran
    assert ["from a hook"] == names()


def test_signals_are_sent_as_by_a_worker():
    """From the task, in order."""
    heard = []
    receivers = {}
    for name in ("job_started", "job_succeeded", "job_retried", "job_dead"):

        def receiver(sender, signal, name=name, **fields):
            heard.append((name, sender, sorted(fields)))

        receivers[name] = receiver
        getattr(signals, name).connect(receiver)
    try:
        for one in (noop, fails, fails_once):
            one.delay()
            drain()
        make_job(task="no.such.task")
        drain()
    finally:
        for name, receiver in receivers.items():
            getattr(signals, name).disconnect(receiver)

    assert [
        ("job_started", noop, ["job"]),
        ("job_succeeded", noop, ["job", "ran_seconds", "result"]),
        ("job_started", fails, ["job"]),
        ("job_retried", fails, ["delay_seconds", "error", "job"]),
        ("job_started", fails_once, ["job"]),
        ("job_dead", fails_once, ["error", "job", "reason"]),
        ("job_retried", None, ["delay_seconds", "error", "job"]),
    ] == heard


def test_an_endless_chain_of_jobs_is_an_error(monkeypatch):
    """The error names the task."""
    monkeypatch.setattr("django_pgqueue.testing.draining.DRAIN_JOBS_MAX", 20)
    assert 10_000 == DRAIN_JOBS_MAX

    @task(name="endless")
    def endless():
        endless.delay()

    endless.delay()
    with pytest.raises(RuntimeError, match=r"ran 20 jobs and there are more.*endless"):
        drain()


@pytest.mark.django_db(transaction=True)
def test_outside_of_a_transaction_it_works_too(cursor):
    """What it does is committed."""
    make_order.delay("committed")
    fails_once.delay()

    assert 2 == drain()

    cursor.execute("SELECT name FROM testapp_order")
    assert [("committed",)] == cursor.fetchall()
    assert 1 == DeadLetter.objects.count()


# What it runs ------------------------------------------------------------------------


def test_retries_run_at_once_when_they_are_asked_for():
    """Until each has succeeded or used up its attempts; in the order of their times."""
    ran = []

    @task(name="third time lucky", retries=5)
    def third_time_lucky():
        ran.append("lucky")
        if ran.count("lucky") < 3:
            raise Unlucky

    @task(name="hopeless", retries=2)
    def hopeless():
        ran.append("hopeless")
        raise Unlucky

    lucky, dead = third_time_lucky.delay(), hopeless.delay()
    drained = drain(retries=True)

    assert 6 == drained == len(ran)
    assert {"retrying": 4, "succeeded": 1, "dead": 1} == drained.statuses
    assert [("succeeded", 3), ("dead", 3)] == [
        (result.status, result.attempt) for result in (lucky, dead)
    ]


def test_what_waits_for_something_else_is_no_retry():
    """Scheduled jobs, snoozes, also after a failure, and those of a paused queue."""
    noop.using(run_after="1h").delay()
    snoozes.delay()
    ran = []

    @task(name="fails, then snoozes")
    def fails_then_snoozes():
        ran.append(1)
        raise Unlucky if len(ran) == 1 else Snooze("1h")

    fails_then_snoozes.delay()
    fails.using(queue="paused").delay()
    drain("paused")
    Queue.objects.filter(name="paused").delete()
    Queue.objects.create(name="paused", paused_at="2026-11-20T00:00:00Z")

    assert 3 == drain(retries=True)
    assert 0 == drain(retries=True)
    assert 4 == Job.objects.count()


def test_it_stops_after_as_many_runs_as_are_asked_for():
    """So that a test can look between two of them."""
    for name in "abc":
        make_order.delay(name)

    assert 2 == drain(max_jobs=2)
    assert ["a", "b"] == names()
    assert 0 == drain(max_jobs=0)
    assert 1 == drain()


def test_async_tasks_run():
    """In the test's transaction, with Django's async queries."""

    @task(name="async", takes_context=True)
    async def counts(ctx, more):
        await Order.objects.acreate(name="async")
        await noop.adelay("from async")
        return await Order.objects.acount() + more

    Order.objects.create(name="of the test")
    result = counts.delay(5)

    assert 2 == drain()
    assert ("succeeded", 7) == (result.status, result.result)


def test_an_atomic_task_writes_all_or_nothing():
    """Its ack included."""

    @task(name="atomic", atomic=True, retries=0)
    def atomic(fail):
        make_order.function("atomic")
        if fail:
            raise Unlucky
        return "done"

    good, bad = atomic.delay(False), atomic.delay(True)

    drained = drain()
    assert 2 == drained
    assert ["atomic"] == names(), drained.runs
    assert [("succeeded", "done"), ("dead", None)] == [
        (result.status, result.result) for result in (good, bad)
    ]


# What it answers ---------------------------------------------------------------------


def test_the_answer_is_a_number_that_knows_its_runs():
    """Equal to the count, and telling more where that is wrong."""
    ok, bad = noop.delay(), fails_once.using(queue="mail").delay()
    drained = drain()

    assert 2 == drained
    assert "<Drained 2: 1 succeeded, 1 dead>" == repr(drained)
    assert [
        (ok.id, noop.name, "default", 1, "succeeded"),
        (bad.id, fails_once.name, "mail", 1, "dead"),
    ] == [(r.id, r.task, r.queue, r.attempt, r.status) for r in drained.runs]
    assert ["bad luck"] == [str(error) for error in drained.errors]
    assert str(drained.runs[1]).endswith("attempt 1, dead: Unlucky('bad luck')")
    assert ("<Drained 0>", False) == (repr(drain()), bool(drain()))
    assert isinstance(drained, Drained)


def test_errors_are_raised_when_they_are_asked_for():
    """The first, once it is settled; what comes after it is still there."""
    bad, after = fails.delay(), noop.delay()

    with pytest.raises(Unlucky, match="bad luck"):
        drain(raise_errors=True)

    assert ["retrying", "ready"] == [result.status for result in (bad, after)]
    assert 1 == drain(raise_errors=True)
