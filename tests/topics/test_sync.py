"""Sync: subscriptions that code declares become rows, and stay."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.core.management import call_command
from django.db import connections

from django_pgqueue import publish, subscribe
from django_pgqueue.log.subscriptions import Declared, find_all
from django_pgqueue.models import Job, LogState, Subscription
from django_pgqueue.postgres.connect import connect
from django_pgqueue.topics import operate_subscriptions as operate
from django_pgqueue.topics import subscribe as declarations
from django_pgqueue.topics.sync import sync_subscriptions
from tests.topics.conftest import deploy

pytestmark = pytest.mark.django_db(transaction=True)

WEEK_AGO = "UPDATE pgqueue_subscription SET last_declared_at = now() - interval '8 day'"


def say(pattern="orders", name="shop.on_order", **said):
    """Declare one subscription, in new code."""
    declarations._declared.clear()

    def handler(message):
        pass

    return subscribe(pattern, name=name, **said)(handler)


def rows():
    with connections["default"].cursor() as cursor:
        return find_all(cursor)


def test_what_is_declared_becomes_a_row():
    """A second deploy changes nothing but when it was declared; nor the epoch."""
    say("orders.*", queue="billing", where={"country": "FR"}, retries=2, tags=["x"])
    told = "orders.* → billing (shop.on_order)"
    assert Declared([told], [], [], []) == deploy()
    (first,) = rows()
    assert ("code", "orders", {"country": "FR"}, {"tags": ["x"]}, 3) == (
        first.source,
        first.topic,
        first.payload_filter,
        first.headers,
        first.max_attempts,
    )
    assert ("latest", None, 1) == (
        first.start,
        first.backfill_position,
        first.since_epoch,
    )
    assert Declared([], [], [], []) == deploy()
    (second,) = rows()
    assert second.last_declared_at > first.last_declared_at
    assert 1 == LogState.objects.get().epoch


def test_code_that_declares_it_no_more():
    """It goes on to route; after a week it is stale, and only then may be deleted."""
    say()
    deploy()
    declarations._declared.clear()
    deploy()
    publish("orders", 1)
    assert 1 == Job.objects.count()
    (row,) = rows()
    assert not row.is_stale
    assert not operate.delete(row.id)
    with connections["default"].cursor() as cursor:
        cursor.execute(WEEK_AGO)
        (stale,) = [row for row in find_all(cursor) if row.is_stale]
    assert stale.is_stale
    assert operate.delete(row.id)
    assert not Subscription.objects.exists()


def test_disabling_it_holds_over_deploys():
    """What is published meanwhile makes no job, also after it is enabled."""
    say()
    deploy()
    (row,) = rows()
    assert operate.disable(row.id, by="ann", reason="broken")
    assert not operate.disable(row.id, by="bob")
    publish("orders", 1)
    assert Declared([], [], [], []) == deploy()
    (row,) = rows()
    assert ("ann", "broken") == (row.disabled_by, row.disabled_reason)
    assert operate.enable(row.id)
    assert not operate.enable(row.id)
    publish("orders", 2)
    assert 1 == Job.objects.count()


def test_a_task_that_got_another_name_keeps_its_row():
    """A migration gives the row of an alias the new name; a worker leaves it."""
    say(name="shop.older")
    deploy()
    say(name="shop.newer", aliases=["shop.older"])
    assert Declared([], [], [], []) == deploy(migrates=False)
    assert ["shop.older"] == [row.task for row in rows()]
    assert ["orders → default (shop.newer)"] == deploy().changed
    assert ["shop.newer"] == [row.task for row in rows()]


def test_a_migration_declares():
    """After migrate the rows are there, and it says so."""
    say()
    out = io.StringIO()
    call_command("migrate", verbosity=1, stdout=out)
    assert "Subscription orders → default (shop.on_order) added" in out.getvalue()
    assert 1 == Subscription.objects.count()


def test_eight_syncs_at_once():
    """Workers that start together declare each row once, and none of them fails."""

    def handler(message):
        pass

    for n in range(10):
        subscribe(f"t{n}", start="earliest", name=f"shop.n{n}")(handler)
    barrier = Barrier(8)

    def start():
        with connect("default", name="test") as raw:
            barrier.wait(10)
            with raw.transaction(), raw.cursor() as cursor:
                return sync_subscriptions(cursor, migrates=False)

    with ThreadPoolExecutor(8) as pool:
        found = [each.result() for each in [pool.submit(start) for _ in range(8)]]
    assert [0] * 7 + [10] == sorted(len(done.added) for done in found)
    assert (10, 10) == (Subscription.objects.count(), LogState.objects.get().epoch)
