"""Lanes of subscriptions: whose jobs wait for one another, and by what of a message."""

from __future__ import annotations

import pytest
from django.db import connections

from django_pgqueue import (
    DeclarationError,
    Limit,
    publish,
    publish_many,
    subscribe,
    task,
)
from django_pgqueue.models import Job
from django_pgqueue.topics.publish import message
from django_pgqueue.topics.subscribe import declared
from django_pgqueue.topics.sync import wanted_subscriptions
from django_pgqueue.worker.chores.backlogs import Backfills
from tests.topics.conftest import deploy

NAME = "shop.on_order"


def listener(pattern="orders.*", name=NAME, **said):
    """Subscribe to a pattern, in the code of a deploy."""

    def handler(message): ...

    made = subscribe(pattern, name=name, **said)(handler)
    deploy()
    return made


def lanes():
    """Return the lane of each job, in the order of ids."""
    return [*Job.objects.order_by("pk").values_list("lane", flat=True)]


# What is declared --------------------------------------------------------------------


@pytest.mark.parametrize(
    "of_task, said, columns",
    [
        ({"group": True}, {}, ([], None)),
        ({"limit": Limit(5)}, {}, ([], 5)),
        ({"limit": Limit(5)}, {"group": "key"}, (["key"], None)),
        ({"limit": Limit(5)}, {"limit": False}, (None, None)),
        ({"group": "message"}, {"group": "key"}, (["key"], None)),
    ],
)
def test_the_lane_of_a_task_holds_for_its_messages_too(of_task, said, columns):
    """Unless the subscription says another, or none."""
    inner = task(name=NAME, **of_task)(lambda message: None)
    subscribe("orders", **said)(inner)

    (row,) = wanted_subscriptions()
    assert columns == (row.lane_by, row.lane_capacity)


@pytest.mark.parametrize(
    "said, problem",
    [
        ({"group": "message"}, "'message' is no part of a message"),
        ({"group": "customer_id"}, 'or a field of its payload, such as "payload.cus'),
        ({"group": "payload..a"}, "is no part"),
        ({"group": "payload." + "x" * 248}, "of at most 255 characters"),
        ({"limit": Limit(5, key=["key", "id"])}, "limit: 'id' is no part"),
        ({"group": lambda message: 1}, "group is a function, and .* cannot call it"),
        ({"group": "key", "limit": Limit(5)}, "Leave limit out"),
        ({"group": ""}, "the name of a parameter"),
        ({"limit": 5}, "it must be a Limit"),
    ],
)
def test_what_no_lane_of_a_message_can_be_is_refused(said, problem):
    """Where it is declared, with the way out."""
    with pytest.raises(DeclarationError, match=f"@subscribe.*{problem}"):
        subscribe("orders", name=NAME, **said)(lambda message: None)
    assert [] == declared()


# What is published -------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_message_waits_for_those_of_its_key(heard):
    """However it was published; one without a key waits for nobody."""
    listener(group="key", queue="mail")
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT pgqueue_publish('orders.made', '1', 'c7')")
    assert {"!lanes"} == set(heard())
    publish("orders.made", 1, key="c7")
    assert {"!lanes"} == set(heard())
    publish("orders.a.b.c.d.e.f", 1, key="c8")
    publish("orders.made", 1)
    assert {"!lanes", "mail"} == set(heard())
    publish_many([message("orders.made", 1, key=key) for key in ("c7", "c9")])

    keys = ["c7", "c7", "c8", None, "c7", "c9"]
    assert [key and f"{NAME}:{key}" for key in keys] == lanes()
    assert [True, True, True, False, True, True] == [
        job.visible_at is None for job in Job.objects.order_by("pk")
    ]


@pytest.mark.django_db(transaction=True)
def test_a_field_that_is_not_there_waits_for_nobody():
    """Nor does a payload that has no fields; what is no key elsewhere is one by its
    JSON."""
    listener(group="payload.customer")
    for payload in ({}, {"customer": None}, [1], "text", None):
        publish("orders.made", payload)
    for value in (1.5, [1, 2], {"b": 1, "a": 2}):
        publish("orders.made", {"customer": value})

    texts = ["1.5", "[1, 2]", '{"a": 2, "b": 1}']
    assert [None] * 5 + [f"{NAME}:{text}" for text in texts] == lanes()


@pytest.mark.django_db(transaction=True)
def test_older_messages_come_into_their_lanes_too(link, heard):
    """In the order of the log; workers are told to look at lanes."""
    for number in range(5):
        publish("orders.made", number, key=f"c{number % 2}")
    publish("orders.made", 5)
    listener(start="earliest", limit=Limit(3, key="key"), queue="late")
    heard()
    backfills = Backfills()
    while not backfills(link):
        pass

    made = [f"{NAME}:c{number % 2}" for number in range(5)]
    assert [*made, None] == lanes()
    assert {3} == {*Job.objects.values_list("lane_capacity", flat=True)}
    assert {"!lanes", "late"} == set(heard())
