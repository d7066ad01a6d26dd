"""Back-fill: an earlier start meets the live flow, with each message once."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.db import connections

from django_pgqueue import publish, subscribe
from django_pgqueue.log.publish import publish as store
from django_pgqueue.models import Job, Message, Subscription, Topic
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.postgres.connect import connect
from django_pgqueue.tasks import payload
from django_pgqueue.worker.chores.backlogs import Backfills
from tests.topics.conftest import deploy

pytestmark = pytest.mark.django_db(transaction=True)

REPEATABLE = "SET default_transaction_isolation = 'repeatable read'"


def listen(pattern="orders", **said):
    """Subscribe to what is there already, and deploy."""

    def handler(message):
        pass

    number = Subscription.objects.count()
    said = {"start": "earliest", "name": f"shop.handler{number}", **said}
    subscribe(pattern, **said)(handler)
    deploy()
    return said["name"]


def send(cursor, *payloads, topic="orders", name=None):
    items = [Items(json.dumps([name or topic, None, each, {}]), 1) for each in payloads]
    return store(cursor, topic, items).ids


def rest(backfills, link, rounds_max=500):
    """Let it work until it has nothing to do now; return whether all are over."""
    for _ in range(rounds_max):
        if backfills(link) > 0:
            return not Subscription.objects.filter(
                backfill_position__isnull=False
            ).exists()
    raise AssertionError("it does not rest")


def jobs(task="shop.handler0"):
    return list(
        Job.objects.filter(task=task)
        .order_by("id")
        .values_list("message_id", flat=True)
    )


@pytest.fixture
def backfills():
    return Backfills()


def test_older_messages_get_their_job(backfills, link):
    """In the order of the log, and in batches; those of other topics do not."""
    with connections["default"].cursor() as cursor:
        ids = send(cursor, *range(1_500))
        send(cursor, *range(6_000), topic="mail")
        ids += send(cursor, *range(700))
    listen(queue="late", priority=3, retries=0, tags=["x"])
    live = publish("orders", "live")
    assert [live] == jobs()
    assert rest(backfills, link)
    assert [live, *ids] == jobs()
    job = Job.objects.order_by("id").last()
    assert ("late", 3, 1, {"tags": ["x"]}) == (
        job.queue,
        job.priority,
        job.max_attempts,
        job.headers,
    )
    message = Message.objects.get(pk=ids[-1])
    ((got,), _) = payload.decode(json.dumps(job.args), "{}")
    assert (message.pk, 699) == (got.id, got.payload)
    assert (None, None) == Subscription.objects.values_list(
        "backfill_position", "backfill_xid"
    ).get()


def test_it_begins_at_a_time(backfills, link):
    """What was published before has no job; nor what retention is about to remove."""
    with connections["default"].cursor() as cursor:
        _, late, later = [send(cursor, n)[0] for n in range(3)]
        moment = Message.objects.get(pk=late).published_at
    listen(start=moment)
    assert moment.isoformat() == Subscription.objects.get().start
    assert rest(backfills, link)
    assert [late, later] == jobs()
    listen(start="1 hour ago")
    Topic.objects.update(removed_to=late)
    assert rest(backfills, link)
    assert [later] == jobs("shop.handler1")


def test_an_open_transaction_is_waited_for(backfills, link, cursor, other_cursor):
    """It published before the subscription and commits after it; its topic is new."""
    with cursor.connection.transaction():
        early = send(cursor, 1)
        listen()
        live = publish("mail", 2)
        assert not rest(backfills, link)
        with other_cursor.connection.transaction():
            other = send(other_cursor, 3, topic="mail")
    assert live < other[0]
    assert rest(backfills, link)
    assert early == jobs()


ROLES = ("read committed", "repeatable read")


def _publisher(seed, until, committed):
    """Publish with pauses, rollbacks and savepoints until told to stop."""
    chance = random.Random(seed)
    with connect("default", name="test publisher") as raw, raw.cursor() as cursor:
        raw.execute(f"SET default_transaction_isolation = '{ROLES[seed % 2]}'")
        while not until.is_set():
            ids = []
            try:
                with raw.transaction():
                    if chance.random() < 0.5:
                        cursor.execute("SELECT 1")
                        until.wait(chance.choice([0, 0.05, 0.4]))
                    for _ in range(chance.randint(1, 3)):
                        until.wait(chance.random() * 0.02)
                        topic = chance.choice(["orders", "mail"])
                        payloads = range(chance.choice([1, 1, 20]))
                        try:
                            with raw.transaction():
                                some = send(cursor, *payloads, topic=topic)
                                if chance.random() < 0.2:
                                    raise psycopg.Rollback
                                ids += some if topic == "orders" else []
                        except psycopg.Rollback:
                            pass
                    until.wait(chance.random() * 0.03)
                    if chance.random() < 0.2:
                        ids = []
                        raise psycopg.Rollback
            except psycopg.errors.SerializationFailure:
                continue  # The topic was made by another one.
            committed += ids


def test_beside_publishers_each_message_has_one_job(link, backfills):
    """
    Whatever they do meanwhile, for subscriptions made at different moments.

    READ COMMITTED and REPEATABLE READ, pauses before the commit, rollbacks of
    transactions and of savepoints.
    """
    until, committed = threading.Event(), [[] for _ in range(6)]
    names = []
    with ThreadPoolExecutor(6) as pool:
        running = [
            pool.submit(_publisher, seed, until, committed[seed]) for seed in range(6)
        ]
        try:
            for _ in range(5):
                names.append(listen())
                ends = time.monotonic() + 0.4
                while time.monotonic() < ends:
                    until.wait(min(backfills(link), 0.01))
        finally:
            until.set()
        for each in running:
            each.result()
    assert rest(backfills, link)
    wanted = sorted(message_id for some in committed for message_id in some)
    assert wanted == list(
        Message.objects.filter(name="orders")
        .order_by("id")
        .values_list("id", flat=True)
    )
    assert len(wanted) > 50
    for name in names:
        found = jobs(name)
        assert [] == [each for each, times in Counter(found).items() if times > 1]
        assert wanted == sorted(found)
