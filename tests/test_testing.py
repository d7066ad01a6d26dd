"""Testing: capture() and drain(), as users' own test suites need them."""

from __future__ import annotations

import warnings
from datetime import timedelta

import pytest
from django.db import Error, connection, transaction
from django.test import TestCase

from django_pgqueue import Reject, RetryLater, Snooze, WrongDatabase, signals, task
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Queue
from django_pgqueue.queues.partitions import partition_name
from django_pgqueue.tasks import registry
from django_pgqueue.testing import DRAIN_JOBS_MAX, capture, drain
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
    returns_unserializable,
    snoozes,
    tells_context,
)
from tests.factories import make_job, make_jobs

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _forget_declared(monkeypatch):
    """What a test declares is forgotten after it."""
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))


def names():
    return sorted(Order.objects.values_list("name", flat=True))


# As a user would write it ------------------------------------------------------------


class PlainTestCase(TestCase):
    """Everything works inside the transaction that a TestCase rolls back."""

    def test_a_captured_job_runs_when_drained(self):
        """The example of the documentation."""
        with capture() as jobs:
            make_order.delay("from a job")
        assert ["tests.app.tasks.make_order"] == [job.task for job in jobs]

        assert 1 == drain()

        assert ["from a job"] == names()

    def test_nothing_is_left_of_other_tests(self):
        """Neither jobs nor what they wrote; whichever test runs first."""
        assert [] == names()
        assert 0 == Job.objects.count() + ArchivedJob.objects.count()
        make_order.delay("x")
        drain()


pytestmark = pytest.mark.django_db


# capture() ---------------------------------------------------------------------------


def test_capture_lists_jobs_in_the_order_of_their_enqueues():
    """With what their rows hold; jobs from before and after the block are not in it."""
    noop.delay("before")
    with capture() as jobs:
        second = noop.using(queue="mail", priority=5, headers={"a": 1}).delay(1, b=2)
        first = add.using(priority=100).delay(1, 2)
        bulk = noop.bulk([(3,), (4,)])
    noop.delay("after")

    assert [r.id for r in (second, first, *bulk)] == [job.id for job in jobs]
    job = jobs[0]
    assert ("tests.app.tasks.noop", "mail", [1], {"b": 2}, 5, {"a": 1}) == (
        job.task,
        job.queue,
        job.args,
        job.kwargs,
        job.priority,
        job.headers,
    )


def test_capture_leaves_out_what_rolled_back():
    """A savepoint took it along."""
    with capture() as jobs:
        noop.delay(1)
        with transaction.atomic():
            noop.delay(2)
            transaction.set_rollback(True)
        noop.delay(3)

    assert [[1], [3]] == [job.args for job in jobs]


def test_captures_can_be_nested():
    """Each has the jobs of its own block."""
    with capture() as outer:
        noop.delay(1)
        with capture() as inner:
            noop.delay(2)
        noop.delay(3)

    assert [[[1], [2], [3]], [[2]]] == [
        [job.args for job in jobs] for jobs in (outer, inner)
    ]


def test_capture_without_an_enqueue_is_empty():
    """And leaves no receiver behind, not even after an exception."""
    receivers = list(signals.job_enqueued.receivers)
    with capture() as jobs:
        pass
    with pytest.raises(ZeroDivisionError), capture():
        raise ZeroDivisionError

    assert [] == jobs
    assert receivers == signals.job_enqueued.receivers


# drain() -----------------------------------------------------------------------------


def test_an_empty_queue_drains_at_once():
    """Nothing ran."""
    assert 0 == drain()


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


def test_a_task_sees_its_job_as_in_a_worker():
    """The attempt, the queue and the idempotency key."""
    result = tells_context.using(queue="mail").delay()
    drain()

    assert (result.id, 1, "mail") == tuple(
        result.result[name] for name in ("id", "attempt", "queue")
    )


def test_a_result_that_cannot_be_stored_costs_the_result_alone():
    """With a note beside the job."""
    result = returns_unserializable.delay()
    drain()

    assert ("succeeded", None) == (result.status, result.result)
    assert "result" == result.errors[0]["kind"]


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


def test_a_task_that_catches_a_database_error_has_succeeded():
    """As in a worker, where each statement is its own transaction."""

    @task(name="catches")
    def catches():
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 / 0")
        except Error:
            return "caught"

    result = catches.delay()
    drain()

    assert ("succeeded", "caught") == (result.status, result.result)
    assert 0 == Order.objects.count()


def test_what_a_task_wrote_before_it_failed_stays():
    """A worker has no transaction around a task; whoever wants one opens it."""

    @task(name="half", retries=0)
    def half():
        Order.objects.create(name="kept")
        with transaction.atomic():
            Order.objects.create(name="rolled back")
            raise Unlucky

    half.delay()
    drain()

    assert ["kept"] == names()


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


def test_a_robust_hook_that_raises_is_logged(caplog):
    """And one that is not robust is the test's to see."""

    def bad():
        raise ZeroDivisionError

    @task(name="robust")
    def robust(is_robust):
        transaction.on_commit(bad, robust=is_robust)

    robust.delay(True)
    assert 1 == drain()
    assert "an on_commit hook failed" in caplog.text

    robust.delay(False)
    with pytest.raises(ZeroDivisionError):
        drain()


@pytest.mark.django_db(databases=["default", "queue"])
def test_every_database_is_as_without_a_transaction(settings):
    """Also where jobs are stored in another one than the task writes to."""
    settings.PGQUEUE = {"DATABASE": "queue"}
    ran = []

    @task(name="two", retries=0)
    def two():
        transaction.on_commit(lambda: ran.append("hook"), using="default")
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")

    Order.objects.create(name="of the test")
    result = two.delay()
    with transaction.atomic("default"), pytest.raises(WrongDatabase):
        two.delay()

    assert 1 == drain()

    assert "dead" == result.status
    assert (["of the test"], ["hook"]) == (names(), ran)


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
        ("job_succeeded", noop, ["job", "ran_seconds"]),
        ("job_started", fails, ["job"]),
        ("job_retried", fails, ["delay_seconds", "error", "job"]),
        ("job_started", fails_once, ["job"]),
        ("job_dead", fails_once, ["error", "job", "reason"]),
        ("job_retried", None, ["delay_seconds", "error", "job"]),
    ] == heard


def test_an_endless_chain_of_jobs_is_an_error(monkeypatch):
    """The error names the task."""
    monkeypatch.setattr("django_pgqueue.testing.DRAIN_JOBS_MAX", 20)
    assert 10_000 == DRAIN_JOBS_MAX

    @task(name="endless")
    def endless():
        endless.delay()

    endless.delay()
    with pytest.raises(RuntimeError, match=r"ran 20 jobs and there are more.*endless"):
        drain()


def test_as_many_jobs_as_the_limit_are_no_endless_chain(monkeypatch):
    """One more would be."""
    monkeypatch.setattr("django_pgqueue.testing.DRAIN_JOBS_MAX", 20)
    make_jobs(20, task=noop.name)

    assert 20 == drain()


def test_ctrl_c_ends_the_test_not_the_task():
    """Everything else that a task raises is an outcome of its job."""

    @task(name="interrupted")
    def interrupted():
        raise KeyboardInterrupt

    @task(name="exits", retries=0)
    def exits():
        raise SystemExit

    result = exits.delay()
    drain()
    assert "dead" == result.status

    interrupted.delay()
    with pytest.raises(KeyboardInterrupt):
        drain()


def test_a_receiver_that_raises_fails_the_test():
    """Where a worker would only log it."""

    def receiver(**fields):
        raise ZeroDivisionError

    signals.job_succeeded.connect(receiver, sender=noop)
    try:
        noop.delay()
        with pytest.raises(ZeroDivisionError):
            drain()
    finally:
        signals.job_succeeded.disconnect(receiver, sender=noop)


def test_a_missing_day_of_the_archive_is_made():
    """A test database that is kept for weeks has no leader that would."""
    with connection.cursor() as ours:
        ours.execute("SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date")
        (today,) = ours.fetchone()
        ours.execute(f"DROP TABLE {partition_name(today)}")
    result = noop.delay()

    assert 1 == drain()
    assert "succeeded" == result.status


@pytest.mark.django_db(transaction=True)
def test_outside_of_a_transaction_it_works_too(cursor):
    """What it does is committed."""
    make_order.delay("committed")
    fails_once.delay()

    assert 2 == drain()

    cursor.execute("SELECT name FROM testapp_order")
    assert [("committed",)] == cursor.fetchall()
    assert 1 == DeadLetter.objects.count()


def test_nothing_that_django_deprecates_is_used():
    """Every warning is an error here, as in the whole suite."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with capture() as jobs:
            noop.delay()
        drain()

    assert 1 == len(jobs)


@pytest.mark.parametrize(
    "error, status",
    [
        (Reject("x"), "dead"),
        (Snooze(seconds=0), "succeeded"),
        (RetryLater(0), "succeeded"),
    ],
    ids=["reject", "snooze", "retry"],
)
def test_what_is_due_again_at_once_is_drained_too(error, status):
    """Its next attempt is due."""
    raised = []

    @task(name="again")
    def again():
        if not raised:
            raised.append(1)
            raise error

    result = again.delay()
    drain()

    assert status == result.status
