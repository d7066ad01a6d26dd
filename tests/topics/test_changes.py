"""@subscribe() of a model: a job for each change that is wanted, with a Change."""

from __future__ import annotations

import pytest

from django_pgqueue import (
    Change,
    TopicError,
    capture_actor,
    subscribe,
)
from django_pgqueue.models import Subscription
from django_pgqueue.testing import drain
from tests.app.models import EveryField, Order
from tests.harness.captures import capture
from tests.topics.conftest import deploy


def ignore(change: Change) -> None:
    """Take a change."""


@pytest.mark.django_db
def test_a_function_gets_the_changes_that_it_wants():
    """Of one field, which the database asks for; with what is captured, and by whom."""
    capture("testapp.Order", topic="orders.changes", fields=["name", "receipt"])
    capture("testapp.EveryField", topic="orders.changes")
    seen: list[Change] = []

    def note(change: Change) -> None:
        seen.append(change)

    subscribe(
        Order,
        on=("update", "delete"),
        fields=["name"],
        topic="orders.changes",
        where={"old": {"receipt": 7}},
        name="shop.on_change",
    )(note)
    deploy()

    order = Order.objects.create(name="a", receipt=7)
    EveryField.objects.create(char="a")
    EveryField.objects.update(char="b")
    with capture_actor("user:7"):
        Order.objects.update(name="b")
    Order.objects.update(receipt=8)
    Order.objects.update(name="c")
    assert 1 == drain(raise_errors=True)
    Order.objects.update(receipt=7)
    key = order.pk
    order.delete()
    assert 1 == drain(raise_errors=True)

    first, second = seen
    assert ("update", key, ("name",), "user:7") == (
        first.act,
        first.pk,
        first.changed,
        first.actor,
    )
    assert {"name": "a", "receipt": 7} == first.old
    assert {"name": "b", "receipt": 7} == first.new
    assert ("delete", None, ("name", "receipt")) == (
        second.act,
        second.new,
        second.changed,
    )
    assert ((), None) == (second.left_out, second.actor)


@pytest.mark.django_db
def test_of_several_fields_a_function_is_called_for_those_that_change():
    """The job of another update ends without a call; async functions alike."""
    capture("testapp.Order")
    seen: list[str] = []

    @subscribe(Order, on=["update"], fields=["name", "id"], name="shop.several")
    async def on_change(change: Change) -> None:
        seen.append(change.new["name"])

    deploy()
    Order.objects.create(name="a")
    Order.objects.update(receipt=7)
    Order.objects.update(name="b")

    assert 2 == drain(raise_errors=True)
    assert ["b"] == seen


@pytest.mark.django_db
def test_each_act_is_a_row():
    """Another act, or another table of the topic, makes no job."""
    subscribe(Order, fields=["name"], name="shop.rows")(ignore)
    deploy()

    rows = Subscription.objects.order_by("id").values_list("pattern", "payload_filter")
    table = {"table": "testapp_order"}
    assert {
        "testapp.order.insert": table,
        "testapp.order.update": {**table, "changed": ["name"]},
        "testapp.order.delete": table,
    } == dict(rows)


@pytest.mark.parametrize(
    "said, message",
    [
        ({"on": "update"}, "on='update'\\): it is a list of 'insert'"),
        ({"on": ()}, "it is a list of"),
        ({"on": ["truncate"]}, "it is a list of"),
        ({"fields": "name"}, "it is a list of names"),
        ({"fields": ["nome"]}, "has no column for 'nome'; its fields are id, name"),
        ({"topic": "a b"}, "A message cannot be called 'a b'"),
        ({"where": {"table": "x"}}, "has 'table', which the model"),
        ({"where": 7}, "it must be a dict"),
    ],
)
def test_what_no_change_has_is_refused(said, message):
    """Where it is declared."""
    with pytest.raises(TopicError, match=message):
        subscribe(Order, **said)
