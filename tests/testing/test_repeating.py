"""crash_once() and redeliver(): the same job twice, as it may happen."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.test import TestCase

from django_pgqueue import signals, task
from django_pgqueue.models import ArchivedJob, Job
from django_pgqueue.testing import crash_once, redeliver
from tests.app.models import Order
from tests.app.tasks import Unlucky, noop

pytestmark = pytest.mark.django_db


OUTSIDE = pytest.param("outside", marks=pytest.mark.django_db(transaction=True))


@pytest.fixture(params=["inside", OUTSIDE])
def anywhere(request):
    """Inside a test's transaction, and without one."""
    assert connection.in_atomic_block is (request.param == "inside")


def charge(name):
    """Stand for what another system is asked to do; is patched to die around it."""
    Order.objects.create(name=f"charged {name}")


def names():
    return list(Order.objects.order_by("pk").values_list("name", flat=True))


@pytest.fixture
def pays():
    """A task that is not idempotent: two writes, and one that belongs together."""

    @task(name="pays", takes_context=True)
    def pays(ctx, name):
        Order.objects.create(name="before")
        with transaction.atomic():
            Order.objects.create(name="together")
            charge(name)
        return ctx.idempotency_key

    return pays


class AsAUserWritesIt(TestCase):
    """The examples of the documentation, in a plain TestCase."""

    def test_a_task_that_is_idempotent(self):
        """Whatever happens to its worker, the order is there once."""

        @task(name="idempotent")
        def idempotent(name):
            return Order.objects.get_or_create(name=name)[1]

        assert [True, False] == redeliver(idempotent, "a")
        assert crash_once(idempotent, "b", at="start") is True
        assert crash_once(idempotent, "c") is False
        assert ["a", "b", "c"] == names()


# crash_once() ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "at, written",
    [
        ("start", []),
        ("before:tests.testing.test_repeating.charge", ["before"]),
        ("after:tests.testing.test_repeating.charge", ["before"]),
        ("end", ["before", "together", "charged x"]),
    ],
)
@pytest.mark.usefixtures("anywhere")
def test_a_crash_leaves_what_was_committed(pays, at, written):
    """What was open rolls back; and then the job runs from its start."""
    key = crash_once(pays, "x", at=at)

    assert [*written, "before", "together", "charged x"] == names()
    done = ArchivedJob.objects.get()
    assert key.endswith(f"-{done.pk}")
    assert (1, 2, 1) == (done.attempt, done.deliveries, done.crashes)
    assert ["worker_lost"] == [error["kind"] for error in done.errors]


@pytest.mark.usefixtures("anywhere")
def test_an_atomic_task_has_no_second_time():
    """Its writes and its ack are one: the crash takes both back."""

    @task(name="atomic", atomic=True)
    def atomic(name):
        charge(name)
        return len(names())

    for at in ("start", "after:tests.testing.test_repeating.charge", "end"):
        Order.objects.all().delete()
        assert 1 == crash_once(atomic, "x", at=at)

    assert ["charged x"] == names()


def test_a_dead_process_has_no_last_words_in_the_database():
    """Whatever a task does to catch the crash, its statements go nowhere."""
    words = []

    @task(name="clings")
    def clings():
        try:
            charge("x")
        except BaseException:
            words.append("caught")
            try:
                Order.objects.create(name="from the grave")
            except BaseException:
                words.append("refused")
            raise
        finally:
            words.append("finally")

    @task(name="swallows")
    def swallows():
        try:
            charge("y")
        except BaseException:
            return "as if nothing had been"

    crash_once(clings, at="after:tests.testing.test_repeating.charge")
    crash_once(swallows, at="before:tests.testing.test_repeating.charge")

    assert ["charged x", "charged x", "charged y"] == names()
    assert ["caught", "refused", "finally", "finally"] == words


def test_a_point_that_is_never_reached_fails_the_test():
    """It would prove nothing."""
    point = "after:tests.testing.test_repeating.charge"
    with pytest.raises(AssertionError, match=r"noop ended without .*it returned"):
        crash_once(noop, at=point)

    @task(name="fails before")
    def fails_before():
        raise Unlucky

    with pytest.raises(AssertionError, match=r"it raised Unlucky\(\)"):
        crash_once(fails_before, at=point)
    assert ["succeeded", "retrying"] == [
        ArchivedJob.objects.get().state,
        "retrying" if Job.objects.retrying().exists() else "",
    ]


# redeliver() -------------------------------------------------------------------------


@pytest.mark.usefixtures("anywhere")
def test_a_redelivered_job_is_the_same_job(pays):
    """The same id, key and attempt; only the number of its delivery grows."""
    seen = []

    def receiver(job, **fields):
        seen.append((job.id, job.delivery, job.attempt, job.crashes))

    signals.job_started.connect(receiver, sender=pays)
    try:
        keys = redeliver(pays, "x", times=5)
    finally:
        signals.job_started.disconnect(receiver, sender=pays)

    done = ArchivedJob.objects.get()
    assert [(done.pk, n, 1, 0) for n in range(1, 6)] == seen
    assert 1 == len(set(keys))
    assert 5 == names().count("charged x")
    assert [] == done.errors
