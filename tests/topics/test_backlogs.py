"""Backlogs: what waits for a subscriber that sleeps has a bound, by policy."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.db import connection, connections, transaction

from django_pgqueue import Backlog, QueueFull, publish, signals, topic
from django_pgqueue.models import ArchivedJob, Job, LogState, Message, Subscription
from django_pgqueue.worker.chores import backlogs as chore
from django_pgqueue.worker.chores.backlogs import Backfills, Backlogs
from tests.harness.factories import make_job
from tests.topics.test_backfill import REPEATABLE, _publisher, jobs, listen, rest, send

pytestmark = pytest.mark.django_db(transaction=True)

TASK = "shop.handler0"


@pytest.fixture
def backfills():
    return Backfills()


@pytest.fixture
def count(link):
    """Let the leader look once."""
    looks = Backlogs()
    return lambda: looks(link)


@pytest.fixture
def full():
    """What the signal told."""
    told = []

    def hear(sender, **fields):
        told.append((fields["on_full"], fields["depth"], fields["depth_max"]))

    signals.subscription_full.connect(hear)
    yield told
    signals.subscription_full.disconnect(hear)


def bounded(depth_max, on_full, **said):
    """Subscribe to orders, with a bound."""
    said = {"start": "latest", "queue": "late", **said}
    return listen(backlog=Backlog(depth_max, on_full=on_full), **said)


def run_jobs(most):
    """End the oldest jobs, as a worker does."""
    ids = Job.objects.filter(task=TASK).order_by("message_id")[:most]
    done = [(each.pk, each.message_id) for each in ids]
    Job.objects.filter(pk__in=[pk for pk, _ in done]).delete()
    return [message for _, message in done]


# Pause -------------------------------------------------------------------------------


def test_one_that_pauses_has_its_jobs_later_and_each_once(
    count, backfills, link, full, caplog
):
    """
    From its bound on messages stay in the log; when half of its jobs are gone, the next
    ones are made, in the order of the log and as far as there is room.
    """
    bounded(10, "pause")
    ids = topic("orders").publish_many(range(10))
    count()
    ids += topic("orders").publish_many(range(15))
    ids.append(publish("orders", 1))
    assert [("pause", 10, 10)] == full
    assert ids[:10] == jobs(TASK)
    assert "held       subscription=orders → late" in caplog.text

    run_jobs(4)
    count()
    backfills(link)
    assert 6 == len(jobs(TASK))

    ran = ids[:4]
    while remaining := run_jobs(3):
        ran += remaining
        count()
        rest(backfills, link)
        assert len(jobs(TASK)) <= 10
    assert ids == ran
    row = Subscription.objects.get()
    assert (None, None, None) == (row.held_at, row.full_at, row.backfill_position)
    assert publish("orders", 2) == jobs(TASK)[-1]
    assert 1 == len(full)


def test_a_snapshot_from_before_it_is_let_go_is_waited_for(
    count, backfills, link, cursor
):
    """It publishes without seeing that messages make jobs again."""
    bounded(1, "pause")
    ids = [publish("orders", 1)]
    count()
    cursor.execute(REPEATABLE)
    with cursor.connection.transaction():
        cursor.execute("SELECT 1")
        run_jobs(1)
        count()
        assert not rest(backfills, link)
        assert Subscription.objects.filter(held_at=None).exists()
        (late,) = send(cursor, 2)
        assert not rest(backfills, link)
    assert rest(backfills, link)
    assert [late] == jobs(TASK)
    assert ids[0] < late


def test_beside_publishers_one_that_pauses_has_one_job_of_each(count, backfills, link):
    """
    However often it is held and let go meanwhile.

    READ COMMITTED and REPEATABLE READ, pauses before the commit, rollbacks of
    transactions and of savepoints.
    """
    bounded(20, "pause")
    with connections["default"].cursor() as cursor:
        send(cursor, 0)
    until, committed, ran = threading.Event(), [[] for _ in range(6)], []
    with ThreadPoolExecutor(6) as pool:
        running = [
            pool.submit(_publisher, seed, until, committed[seed]) for seed in range(6)
        ]
        try:
            # Five times held, and let go.
            while LogState.objects.get().epoch < 11:
                count()
                ran += run_jobs(30)
                count()
                backfills(link)
                until.wait(0.005)
        finally:
            until.set()
        for each in running:
            each.result()
    for _ in range(2_000):
        ran += run_jobs(100)
        count()
        if rest(backfills, link) and not Job.objects.exists():
            break
    wanted = list(
        Message.objects.filter(name="orders")
        .order_by("id")
        .values_list("id", flat=True)
    )
    assert [] == [each for each, times in Counter(ran).items() if times > 1]
    assert wanted == sorted(ran)


# Drop the oldest ---------------------------------------------------------------------


def test_the_oldest_jobs_are_dropped_but_for_those_that_run(
    count, full, cursor, monkeypatch, caplog
):
    """Cancelled, with the reason, so many at a time; others of the queue stay."""
    monkeypatch.setattr(chore, "DROP_JOBS_MAX", 4)
    bounded(5, "drop_oldest")
    make_job(queue="late", task="shop.other")
    ids = topic("orders").publish_many(range(12))
    cursor.execute(
        "UPDATE pgqueue_job SET leased_by = 'w', visible_at = clock_timestamp()"
        " + interval '1 min' WHERE message_id = %s",
        [ids[0]],
    )
    count()
    assert [ids[0], *ids[5:]] == jobs(TASK)
    count()
    count()
    assert [ids[0], *ids[8:]] == jobs(TASK)
    assert {"cancelled"} == set(ArchivedJob.objects.values_list("state", flat=True))
    (entry,) = ArchivedJob.objects.first().errors
    assert "backlog of orders: 5 jobs" == entry["by"]
    assert [("drop_oldest", 9, 5)] == full
    assert "dropped    subscription=orders → late (shop.handler0) jobs=4" in caplog.text
    assert Job.objects.filter(task="shop.other").exists()


# Refuse ------------------------------------------------------------------------------


def test_publishers_are_refused_and_their_transactions_go_on(count, full):
    """Of messages that it wants, until there is room; whoever publishes and how."""
    bounded(3, "refuse", where={"n": 1})
    topic("orders").publish_many([{"n": 1}] * 3)
    publish("orders", {"n": 1})
    count()
    told = []

    def hear(sender, **fields):
        told.append((fields["queue"], fields["jobs"]))

    signals.queue_full.connect(hear)
    try:
        with transaction.atomic():
            for call in (
                lambda: publish("orders", {"n": 1}),
                lambda: topic("orders").publish_many([{"n": 0}, {"n": 1}]),
                lambda: publish("orders.a.b.c.d.e.f.g", {"n": 1}),
            ):
                with pytest.raises(QueueFull, match=r"full.*@subscribe\('orders'"):
                    call()
            kept = publish("orders", {"n": 0})
            kept_too = publish("mail", {"n": 1})
    finally:
        signals.queue_full.disconnect(hear)
    assert [("late", 1), ("late", 2), ("late", 1)] == told
    assert [("refuse", 4, 3)] == full
    assert {kept, kept_too} == set(
        Message.objects.order_by("-id")[:2].values_list("id", flat=True)
    )
    with connection.cursor() as cursor, pytest.raises(Exception, match="is full") as e:
        cursor.execute("SELECT pgqueue_publish('orders', '{\"n\": 1}')")
    assert isinstance(e.value.__cause__, psycopg.errors.ConfigurationLimitExceeded)

    run_jobs(2)
    count()
    assert publish("orders", {"n": 1}) in jobs(TASK)
