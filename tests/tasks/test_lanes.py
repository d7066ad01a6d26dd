"""Which lane a call's jobs go into, and what goes with one."""

from __future__ import annotations

from datetime import date
from uuid import UUID

import pytest
from django.db.models import Value

from django_pgqueue import (
    DeclarationError,
    Group,
    Limit,
    Unique,
    task,
)
from django_pgqueue.models import Job
from tests.app import lane_tasks as tasks
from tests.app.models import Order

NAME = "tests.app.lane_tasks.step"
pytestmark = pytest.mark.django_db


def lanes():
    """Return the lane and the capacity of each job, in the order of ids."""
    return [*Job.objects.order_by("pk").values_list("lane", "lane_capacity")]


# What is declared --------------------------------------------------------------------


def test_keys_of_a_task_take_turns():
    """Its lanes are fair ones, of its own name."""

    @task(name="tests.turns", fair_by="customer")
    def step(customer): ...

    step.delay("c")
    step.bulk([("c",), (None,)])
    step.using(fair_by=False).delay("c")

    fair = ("tests.turns:c", "fair")
    kept = Job.objects.order_by("pk").values_list("lane", "lane_policy")
    assert [fair, fair, (None, None), (None, None)] == [*kept]
    assert 2 == Job.objects.filter(lane__isnull=False, visible_at=None).count()


def test_keys_of_a_queue_take_turns_whatever_the_task(settings):
    """Of those tasks that have such a parameter, and say nothing else."""
    settings.PGQUEUE = {"QUEUES": {"mail": {"fair_by": "customer", "priority": 3}}}

    @task(name="tests.one", queue="mail")
    def one(customer): ...

    @task(name="tests.two", queue="mail")
    def two(size, customer): ...

    @task(name="tests.other", queue="mail")
    def other(size): ...

    @task(name="tests.alone", queue="mail", group=True)
    def alone(customer): ...

    one.delay("c")
    two.bulk([(1, "c")])
    two.from_queryset(Order.objects.none(), size="pk", customer="pk")
    other.delay(1)
    alone.delay("c")
    one.using(queue="elsewhere").delay("c")
    one.using(group=False).delay("c")
    kept = Job.objects.order_by("pk").values_list("lane", "lane_policy")

    fair = ("mail:c", "fair")
    alone = ("tests.alone", None)
    assert [fair, fair, (None, None), alone, (None, None), (None, None)] == [*kept]


@pytest.mark.parametrize(
    "options, problem",
    [
        ({"group": "custmer"}, "Did you mean 'customer'"),
        ({"group": ""}, "the name of a parameter"),
        ({"group": []}, "the name of a parameter"),
        ({"group": ["customer", "customer"]}, "each once"),
        ({"group": 5}, "the name of a parameter"),
        ({"group": Group("custmer")}, "Did you mean 'customer'"),
        ({"limit": 5}, "it must be a Limit"),
        ({"limit": Limit(5, key="tenant")}, "'tenant' is no parameter"),
        ({"group": "customer", "limit": Limit(5)}, "Leave limit out"),
        ({"group": "customer", "unique": Unique()}, "unique"),
        ({"fair_by": "custmer"}, "fair_by: 'custmer' is no parameter"),
        ({"fair_by": True}, "the name of a parameter"),
        ({"fair_by": "customer", "limit": Limit(5)}, "leave fair_by out"),
        ({"fair_by": "customer", "group": "customer"}, "leave fair_by out"),
        ({"limit": Limit(1), "throttle": "1/h"}, "throttle"),
    ],
)
def test_what_no_lane_can_be_is_refused_where_it_is_declared(options, problem):
    """With the way out."""

    def step(customer): ...

    with pytest.raises(DeclarationError, match=problem):
        task(name="tests.refused", **options)(step)


# The lane of a job -------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, text",
    [
        ("ü 7", "ü 7"),
        (7, "7"),
        (True, "true"),
        (date(2026, 11, 24), "2026-11-24"),
        (UUID(int=7), str(UUID(int=7))),
    ],
)
def test_the_lane_has_the_name_of_the_task_and_the_value(value, text):
    """By name and by place, of one call and of many; and parked it is."""
    tasks.step.delay(value, 1)
    tasks.step.delay(customer=value, number=1)
    tasks.step.bulk([(value, 1), {"customer": value, "number": 2}])

    assert [(f"{NAME}:{text}", None)] * 4 == lanes()
    assert not Job.objects.filter(visible_at__isnull=False).exists()


def test_a_call_may_say_another_lane_or_none():
    """As with any other option."""
    tasks.step.using(group="number").delay("a", 1)
    tasks.step.using(limit=Limit(4, key=["customer", "number"])).delay("a", 1)
    tasks.step.using(group=True).delay("a", 1)
    tasks.step.using(group=False).delay("a", 1)
    tasks.step.using(group=lambda customer, number: number % 2).delay("a", 7)

    assert [
        (f"{NAME}:1", None),
        (f"{NAME}:a:1", 4),
        (NAME, None),
        (None, None),
        (f"{NAME}:1", None),
    ] == lanes()


@pytest.mark.parametrize("text", ["x" * 400, "ü" * 300, "x" * (254 - len(NAME))])
def test_rows_of_a_query_get_the_lanes_that_calls_get(text):
    """Long names too, whose end is hashed, in Python and in the database."""
    order = Order.objects.create(name=text[:50])
    tasks.step.delay(text, order.pk)
    tasks.step.from_queryset(
        Order.objects.filter(pk=order.pk), customer=Value(text), number="pk"
    )
    tasks.step.using(group="number").delay("a", order.pk)
    tasks.step.using(group="number").from_queryset(
        Order.objects.filter(pk=order.pk), customer="name", number="pk"
    )

    first, second, third, fourth = lanes()
    assert first == second
    assert third == fourth == (f"{NAME}:{order.pk}", None)
    assert all(len(lane) <= 255 for lane, _ in lanes())
