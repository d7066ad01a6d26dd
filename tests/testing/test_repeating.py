"""crash_once() and redeliver(): the same job twice, as it may happen."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.test import TestCase

from django_pgqueue import Reject, Snooze, signals, task
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Queue
from django_pgqueue.testing import crash_once, drain, freeze, redeliver
from django_pgqueue.topics.captured import Captured
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


async def acharge(name):
    """The same, awaited."""
    await Order.objects.acreate(name=f"charged {name}")


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


@pytest.mark.parametrize(
    "at, problem",
    [
        ("middle", "at='middle': it must be 'start', 'end', 'before:path"),
        ("start:x.y", "it must be"),
        ("after:", "it must be"),
        ("after:charge", "it must be"),
        ("after:tests.testing.test_repeating.chrage", "There is no function 'tests"),
        ("before:no.such.module", "There is no function 'no.such.module'"),
    ],
)
def test_a_point_that_is_none_is_an_error(at, problem):
    """Before anything runs."""
    with pytest.raises(ValueError, match=problem):
        crash_once(noop, at=at)


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


@pytest.mark.usefixtures("anywhere")
def test_an_atomic_task_is_redelivered_without_a_trace():
    """A lost ack takes its writes along."""

    @task(name="atomic", atomic=True)
    def atomic(name):
        Order.objects.create(name=name)
        return Order.objects.count()

    assert [1, 1, 1] == redeliver(atomic, "x", times=3)
    assert ["x"] == names()


def test_what_a_run_fails_with_comes_out():
    """Whichever it was; also a word."""

    @task(name="once")
    def once(error):
        if Order.objects.exists():
            raise error if error == "later" else Reject(error)
        Order.objects.create(name="x")

    with pytest.raises(Reject, match="again") as caught:
        redeliver(once, "again", times=3)
    assert ["This was run 2 of job"] == [n[:21] for n in caught.value.__notes__]
    assert "rejected" == DeadLetter.objects.get().reason

    @task(name="sleepy")
    def sleepy():
        raise Snooze("1h")

    with pytest.raises(Snooze, match="again in 3600 s"):
        redeliver(sleepy)


# Both --------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [crash_once, redeliver])
def test_a_job_that_cannot_run_is_an_error(again):
    """The error says what it is, and how its time can come."""
    later = noop.using(run_after="1h").delay()
    with pytest.raises(ValueError, match=r"scheduled and cannot run now.*freeze\(\)"):
        again(later)
    done = noop.delay()
    drain()
    with pytest.raises(ValueError, match="is succeeded and cannot run now"):
        again(done)
    Queue.objects.create(name="paused", paused_at="2026-11-20T00:00:00Z")
    with pytest.raises(ValueError, match="queue not paused"):
        again(noop.using(queue="paused").delay())
    with pytest.raises(LookupError, match="never committed"):
        again(2**40)

    with freeze() as clock:
        clock.advance("1h")
        again(later)


@pytest.mark.parametrize("again", [crash_once, redeliver])
def test_nothing_of_it_stays(again):
    """The function at the point is the real one again, and so are the connections."""
    original = charge
    again(noop)
    assert charge is original
    assert [Captured] == [*map(type, connection.execute_wrappers)]
