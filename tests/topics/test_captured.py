"""Captured writes: who is woken after the commit, and who has acted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection, transaction

from django_pgqueue import consume, subscribe
from django_pgqueue.topics.captured import capture_actor
from django_pgqueue.topics.sync import sync_groups
from tests.app.models import Order
from tests.harness.captures import capture, captures, published
from tests.topics.conftest import deploy

__all__ = ["captures"]

Heard = Callable[[], list[str]]


def listens() -> None:
    """A queue and a group want what is captured."""
    subscribe("orders", queue="search", name="shop.on_order")(lambda message: None)
    consume("orders", group="audit", name="shop.audit")(lambda messages: None)
    deploy()
    with transaction.atomic(), connection.cursor() as cursor:
        sync_groups(cursor)


def rolled_back(write: Callable[[], object]) -> None:
    """Write what a savepoint takes back."""
    with transaction.atomic():
        write()
        transaction.set_rollback(True)


@pytest.mark.django_db(transaction=True)
def test_workers_are_woken_after_the_commit_of_djangos_write(
    captures: None, heard: Heard
):
    """With a transaction and without; by the ORM and by raw SQL; once for many."""
    listens()
    capture("testapp.Order", topic="orders")

    Order.objects.create()
    assert ["!topic orders", "search"] == sorted(heard())
    with transaction.atomic():
        Order.objects.create()
        with connection.cursor() as cursor:
            cursor.execute("UPDATE testapp_order SET name = 'b'")
        assert [] == heard()
    assert ["!topic orders", "search"] == sorted(heard())
    Order.objects.update(name="b")
    assert [] == heard()


@pytest.mark.django_db(transaction=True)
def test_nobody_is_woken_for_what_was_rolled_back(captures: None, heard: Heard):
    """Neither for a savepoint, nor for a statement that has failed."""
    listens()
    capture("testapp.Order", topic="orders")
    with transaction.atomic():
        rolled_back(Order.objects.create)
    with connection.cursor() as cursor, pytest.raises(Exception, match="by zero"):
        cursor.execute("INSERT INTO testapp_order (name) VALUES (''); SELECT 1 / 0")
    assert not Order.objects.exists()
    assert [] == heard()
    Order.objects.create()
    assert ["!topic orders", "search"] == sorted(heard())


@pytest.mark.django_db(transaction=True)
def test_messages_say_who_has_acted(captures: None):
    """In a transaction, without one, within another's, and past a savepoint."""
    capture("testapp.Order", topic="orders", fields=["name"])
    with capture_actor("user:7"):
        order = Order.objects.create(name="a")
        with transaction.atomic():
            Order.objects.update(name="b")
            with capture_actor("user:8"):
                Order.objects.update(name="c")
            Order.objects.update(name="d")
            with capture_actor("user:9"):
                rolled_back(lambda: Order.objects.update(name="lost"))
            Order.objects.update(name="e")
        with capture_actor(None):
            Order.objects.update(name="f")
    with transaction.atomic():
        with capture_actor("user:7"):
            Order.objects.update(name="g")
        Order.objects.update(name="h")
    order.delete()

    told = [
        ((payload["new"] or {}).get("name"), headers.get("actor"))
        for _, _, payload, headers in published()
    ]
    assert [
        *(("a", "user:7"), ("b", "user:7"), ("c", "user:8"), ("d", "user:7")),
        *(("e", "user:7"), ("f", None), ("g", "user:7"), ("h", None), (None, None)),
    ] == told
