"""crash_once() and redeliver(): the same job twice, as it may happen."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.test import TestCase

from django_pgqueue import JobFailed, Reject, Snooze, signals, task
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Queue
from django_pgqueue.testing import crash_once, drain, freeze, immediate, redeliver
from django_pgqueue.topics.captured import Captured
from tests.app.models import Order
from tests.app.tasks import Unlucky, make_order, noop

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


def test_hooks_of_what_was_committed_ran_before_the_crash():
    """Those of what was open never do."""
    ran = []

    @task(name="hooks")
    def hooks():
        with transaction.atomic():
            transaction.on_commit(lambda: ran.append("committed"))
        with transaction.atomic():
            transaction.on_commit(lambda: ran.append("open"))
            charge("x")

    crash_once(hooks, at="after:tests.testing.test_repeating.charge")

    assert ["committed", "committed", "open"] == ran


def test_an_async_task_crashes_too():
    """At its end, and around a coroutine."""

    @task(name="async")
    async def asynchronous(name):
        await acharge(name)
        return await Order.objects.acount()

    assert 2 == crash_once(asynchronous, "x")
    path = "after:tests.testing.test_repeating.acharge"
    assert 4 == crash_once(asynchronous, "y", at=path)


def test_a_job_that_is_there_can_be_given():
    """What delay() returned, its id, or its row."""
    assert crash_once(make_order.delay("x")) is not None
    crash_once(make_order.delay("x").id)
    crash_once(Job.objects.get(pk=make_order.delay("x").id))

    assert ["x"] * 6 == names()


def test_jobs_that_it_enqueues_are_kept_by_what_was_committed():
    """Each run enqueues its own, which is what the test wants to see."""

    @task(name="parent")
    def parent():
        noop.delay()

    crash_once(parent)
    assert 2 == Job.objects.count()
    with immediate():
        crash_once(parent)
    assert 2 == Job.objects.count()
    assert 2 == drain()


def test_signals_tell_of_two_starts_and_one_end():
    """As with workers: the dead one cannot tell its end."""
    heard = []

    def receiver(signal, job, **fields):
        heard.append((signal, job.delivery))

    for signal in (signals.job_started, signals.job_succeeded):
        signal.connect(receiver, sender=noop)
    try:
        crash_once(noop)
    finally:
        for signal in (signals.job_started, signals.job_succeeded):
            signal.disconnect(receiver, sender=noop)

    assert [
        (signals.job_started, 1),
        (signals.job_started, 2),
        (signals.job_succeeded, 2),
    ] == heard


def test_what_was_acked_before_the_crash_does_not_run_again():
    """At most once is what such a task has asked for."""
    ran = []

    @task(name="first", ack_policy="first")
    def first():
        ran.append("first")

    @task(name="manual", ack_policy="manual", takes_context=True)
    def manual(ctx):
        ctx.ack()
        ran.append("manual")

    assert crash_once(first) is None
    assert crash_once(manual) is None

    assert ["first", "manual"] == ran
    assert 2 == ArchivedJob.objects.filter(state="succeeded").count()


def test_what_the_second_run_fails_with_comes_out():
    """With a note which run it was; the job is settled by its policy."""

    @task(name="not idempotent")
    def not_idempotent(name):
        if Order.objects.filter(name=name).exists():
            raise Unlucky("twice")
        Order.objects.create(name=name)

    with pytest.raises(Unlucky, match="twice") as caught:
        crash_once(not_idempotent, "x")

    job = Job.objects.get()
    assert [
        f"This was run 2 of job {job.pk}, not idempotent."
    ] == caught.value.__notes__
    assert (1, 1) == (job.attempt, job.crashes)


def test_a_job_that_has_crashed_too_often_is_dead(settings):
    """With CRASHES_MAX of 1, the next worker does not even try."""
    settings.PGQUEUE = {"CRASHES_MAX": 1}

    with pytest.raises(JobFailed, match=r"is dead \(worker_lost\)\. This was run 2"):
        crash_once(noop)

    assert "worker_lost" == DeadLetter.objects.get().reason


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


@pytest.mark.parametrize("policy", ["first", "manual"])
def test_what_is_acked_before_its_end_is_not_delivered_again(policy):
    """So there is nothing to test, and the test should say so."""

    @task(name="acked", ack_policy=policy, takes_context=True)
    def acked(ctx):
        if policy == "manual":
            ctx.ack()

    with pytest.raises(AssertionError, match="acked is not delivered again: its"):
        redeliver(acked)
    assert 1 == ArchivedJob.objects.count()


@pytest.mark.parametrize("times", [-1, 0, 1, 101])
def test_the_number_of_runs_has_limits(times):
    """One run is no repeat; a hundred deliveries make a dead letter."""
    with pytest.raises(ValueError, match=rf"times={times}: it must be from 2 to 100"):
        redeliver(noop, times=times)
    assert 0 == Job.objects.count()


def test_as_many_runs_as_the_limit_are_possible():
    """Before the deliveries of the job are used up."""
    assert 100 == len(redeliver(noop, times=100))


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
def test_other_jobs_are_left_alone(again):
    """Also those that would be claimed before it."""
    other = noop.using(priority=100).delay()
    again(noop)

    assert [other.id] == list(Job.objects.values_list("pk", flat=True))


@pytest.mark.parametrize(
    "again, name, value", [(crash_once, "at", "start"), (redeliver, "times", 3)]
)
def test_a_keyword_that_means_two_things_is_refused(again, name, value):
    """With the way out."""

    @task(name="clashes")
    def clashes(at=0, times=0):
        """Do nothing."""

    with pytest.raises(TypeError, match=f"both have an argument '{name}': enqueue"):
        again(clashes, **{name: value})
    with pytest.raises(TypeError, match="arguments only with a task"):
        again(clashes.delay(), 1)
    again(clashes.delay(**{name: value}))


@pytest.mark.parametrize("again", [crash_once, redeliver])
def test_nothing_of_it_stays(again):
    """The function at the point is the real one again, and so are the connections."""
    original = charge
    again(noop)
    assert charge is original
    assert [Captured] == [*map(type, connection.execute_wrappers)]
