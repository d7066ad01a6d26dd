"""Depth: what a producer meets whose queue holds as many jobs as it may."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_pgqueue import QueueFull
from django_pgqueue.models import Job, Queue
from django_pgqueue.signals import queue_full
from django_pgqueue.tasks import depth
from tests.app.models import Order
from tests.app.tasks import add
from tests.harness.factories import make_job

pytestmark = pytest.mark.django_db(transaction=True)

MAIL = add.using(queue="mail")


class Time:
    """A monotonic clock that goes when somebody sleeps, or the test says so."""

    def __init__(self):
        self.now = 1_000.0
        self.slept = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def time(monkeypatch):
    """What a process measures with."""
    time = Time()
    monkeypatch.setattr(depth, "time", time)
    return time


@pytest.fixture(autouse=True)
def _forget():
    """Nothing is known of queues, as in a new process."""
    depth.gauges.clear()
    yield
    depth.gauges.clear()


@pytest.fixture
def limit(settings):
    """A function: the queue "mail" has a limit from here on."""

    def limit(depth_max, on_full="refuse", **more):
        options = {"depth_max": depth_max, "on_full": on_full, **more}
        settings.PGQUEUE = {"QUEUES": {"mail": options}}

    return limit


@pytest.fixture
def told():
    """What the signal has said so far."""
    heard = []

    def hear(sender, signal, **fields):
        heard.append((sender, fields))

    queue_full.connect(hear)
    yield heard
    queue_full.disconnect(hear)


def noted(jobs, seconds=0.0):
    """Let a leader have counted so many, a while ago."""
    at = datetime.now(UTC) - timedelta(seconds=seconds)
    Queue.objects.update_or_create(
        name="mail", defaults={"depth": jobs, "depth_at": at}
    )


INSERT, NOTIFY, READ, COUNT = "insert", "notify", "read", "count"


def kind(query):
    """Return what a statement does."""
    sql = query["sql"]
    if "pgqueue_store" in sql:
        return INSERT
    if "pg_notify" in sql:
        return NOTIFY
    return READ if "pgqueue_queue" in sql else COUNT if "counted" in sql else sql


def stored():
    return Job.objects.filter(queue="mail").count()


# Refuse ------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused(limit):
    """The error names queue, depth, limit and a way out; nothing is stored."""
    limit(3)
    for _ in range(3):
        MAIL.delay(1, 2)

    with pytest.raises(
        QueueFull,
        match=r"tests.app.tasks.add: queue 'mail' is full: it holds 3 jobs of at most "
        r"3, and 1 more would come \(PGQUEUE\['QUEUES'\]\['mail'\]\['depth_max'\]\). "
        r"Nothing is stored. Try again later",
    ) as caught:
        MAIL.delay(1, 2)

    error = caught.value
    assert ("mail", 3, 3, 1) == (error.queue, error.depth, error.depth_max, error.jobs)
    assert 3 == stored()


def test_a_bulk_fits_as_a_whole_or_not_at_all(limit):
    """One that is larger than the limit is told that it never does."""
    limit(5)
    MAIL.bulk([(1, 2)] * 3)
    with pytest.raises(QueueFull, match="holds 3 jobs of at most 5, and 3 more"):
        MAIL.bulk([(1, 2)] * 3)
    with pytest.raises(QueueFull, match="They never fit: store fewer at a time"):
        MAIL.bulk([(1, 2)] * 6)
    MAIL.bulk([(1, 2)] * 2)

    assert 5 == stored()


# What a process knows ----------------------------------------------------------------


def test_without_a_limit_nothing_is_asked(limit):
    """One statement stores the job, as ever; also beside a queue that has a limit."""
    limit(1)
    add.delay(1, 2)
    with CaptureQueriesContext(connection) as queries:
        add.delay(1, 2)
        add.using(queue="sms").delay(1, 2)

    assert [INSERT, NOTIFY] * 2 == [kind(query) for query in queries]


def test_a_process_reads_the_leaders_count_once_a_second(limit, time):
    """Between, a call sends what it sends without a limit."""
    limit(100)
    noted(5)
    MAIL.delay(1, 2)
    with CaptureQueriesContext(connection) as queries:
        for _ in range(10):
            time.now += 0.09
            MAIL.delay(1, 2)
    assert INSERT in map(kind, queries)
    assert {INSERT, NOTIFY} >= set(map(kind, queries))

    time.now += 0.11
    with CaptureQueriesContext(connection) as queries:
        MAIL.delay(1, 2)
    assert [READ, INSERT] == [kind(query) for query in queries][:2]


def test_before_it_refuses_for_its_own_jobs_it_counts(limit, time):
    """Workers have taken jobs meanwhile: who enqueues steadily is not refused."""
    limit(5)
    noted(0)
    for _ in range(20):
        MAIL.delay(1, 2)
        Job.objects.all().delete()
        time.now += 0.01

    assert 0 == stored()


def test_a_count_that_takes_too_long_holds_nobody_up(limit, monkeypatch):
    """The transaction of the caller goes on; after a while nothing is known."""
    limit(2)
    monkeypatch.setattr(depth.depths, "COUNT", "SELECT pg_sleep(60)::text, 0")
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '50ms'")
    try:
        with transaction.atomic():
            MAIL.bulk([(1, 2)] * 2)
            MAIL.delay(1, 2)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET statement_timeout")

    assert 3 == stored()


# Signal ------------------------------------------------------------------------------


def test_a_signal_tells_and_the_job_is_stored(limit, told):
    """For each call that meets a full queue, with what is to come."""
    limit(1, "signal")
    MAIL.delay(1, 2)
    assert [] == told

    MAIL.bulk([(1, 2)] * 4)
    fields = {"queue": "mail", "depth": 1, "depth_max": 1, "jobs": 4}
    assert [(add, {**fields, "on_full": "signal"})] == told
    assert 5 == stored()


# Block -------------------------------------------------------------------------------


def test_who_waits_goes_on_when_there_is_room(limit, time, monkeypatch, told):
    """And has held nothing up meanwhile: no transaction is open."""
    limit(1, "block")
    noted(1)

    def sleep(seconds):
        assert not connection.in_atomic_block
        time.now += seconds
        if time.now > 1_003:
            noted(0)

    monkeypatch.setattr(time, "sleep", sleep)
    MAIL.delay(1, 2)

    assert 1_003 < time.now < 1_006
    assert (1, 1) == (stored(), len(told))


def test_who_waits_in_vain_is_refused(limit, time):
    """After the time that the settings say; the error tells how long that was."""
    limit(1, "block", block_seconds="4s")
    make_job(queue="mail")
    with pytest.raises(
        QueueFull, match="is full, still after 4 s: it holds 1"
    ) as caught:
        MAIL.delay(1, 2)

    assert (
        4
        == pytest.approx(caught.value.waited_seconds)
        == pytest.approx(sum(time.slept))
    )
    assert 1 == stored()


def test_nobody_waits_in_a_transaction(limit, time):
    """It would keep vacuum from its work: the error says so, and where to wait."""
    limit(1, "block")
    make_job(queue="mail")
    with (
        transaction.atomic(),
        pytest.raises(
            QueueFull, match=r"which would hold VACUUM back: .* add\.on_commit\(\)"
        ),
    ):
        MAIL.delay(1, 2)
    connection.set_autocommit(False)
    try:
        with pytest.raises(QueueFull, match="with a transaction open"):
            MAIL.delay(1, 2)
        connection.rollback()
    finally:
        connection.set_autocommit(True)

    assert [] == time.slept


# From async code ---------------------------------------------------------------------


def drain():
    Job.objects.all().delete()


@pytest.mark.parametrize("call", ["adelay", "abulk", "afrom_queryset"])
def test_a_coroutine_that_waits_leaves_the_thread_to_others(limit, told, call):
    """Other code for the database goes on there; a generator's items are not lost."""
    limit(1, "block")
    make_job(queue="mail")
    order = Order.objects.create(name="a")

    async def main():
        calls = {
            "adelay": lambda: MAIL.adelay(1, 2),
            "abulk": lambda: MAIL.abulk((n, 2) for n in range(1)),
            "afrom_queryset": lambda: MAIL.afrom_queryset(
                Order.objects.all(), left="pk", right="pk"
            ),
        }
        loop, is_told = asyncio.get_running_loop(), asyncio.Event()

        def hear(**fields):
            loop.call_soon_threadsafe(is_told.set)

        queue_full.connect(hear)
        waiting = asyncio.ensure_future(calls[call]())
        await is_told.wait()
        assert order.pk == (await Order.objects.aget()).pk
        assert not waiting.done()
        await sync_to_async(drain)()
        await waiting
        assert 1 == await sync_to_async(stored)()
        assert 1 == len(told)

    async_to_sync(main)()
