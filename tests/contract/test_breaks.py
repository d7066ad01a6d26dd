"""Breaks: who goes by the older document, and what of it code no longer keeps."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, make_dataclass
from inspect import Parameter, Signature
from typing import Any, Literal

import pytest

from django_pgqueue import cron, task, topic
from django_pgqueue.contract.breaks import breaks
from django_pgqueue.contract.document import document


@pytest.fixture
def changed(nothing):
    """Return what breaks between two declarations."""

    def between(before, now):
        documents = []
        for declare in (before, now):
            nothing()
            declare()
            documents.append(document("shop"))
        return breaks(*documents)

    return between


def send(name="shop.send", *, aliases=(), **hints):
    """Return what declares a task; a parameter is a hint, or a hint and a default."""

    def declare():
        def function(**kwargs): ...

        given = {
            name: each if isinstance(each, tuple) else (each, Parameter.empty)
            for name, each in hints.items()
        }
        function.__signature__ = Signature(
            [
                Parameter(name, Parameter.KEYWORD_ONLY, default=default)
                for name, (_, default) in given.items()
            ]
        )
        function.__annotations__ = {
            name: hint for name, (hint, _) in given.items() if hint is not None
        }
        task(name=name, aliases=list(aliases))(function)

    return declare


def told(found):
    return [str(each) for each in found]


ADDITIVE = [
    (send(order_id=int), send(order_id=int, note=(str, ""))),
    (send(order_id=int), send(order_id=int | str)),
    (send(order_id=int), send(order_id=float)),
    (send(order_id=int), send(order_id=None)),
    (send(order_id=None), send(order_id=int)),
    (send(kind=Literal["a"]), send(kind=Literal["a", "b"])),
    (send(kind=Literal["a"]), send(kind=str)),
    (send(ids=list[int]), send(ids=list[int | None])),
    (send(order_id=int), send(order_id=(int, 5))),
    (send("a"), send("b", aliases=["a"])),
    (lambda: None, send(order_id=int)),
]


@pytest.mark.parametrize("before, now", ADDITIVE)
def test_a_task_may_take_more(changed, before, now):
    """Jobs that wait run all the same."""
    assert [] == told(changed(before, now))
    assert [] == told(changed(now, now))


BREAKING = [
    (send(order_id=int), send(), "parameter order_id is gone.*with a default"),
    (send(), send(order_id=int), "parameter order_id is new and has no default"),
    (send(order_id=int), send(order=int), "order is new.*order_id is gone"),
    (send(order_id=(int, 1)), send(order_id=int), "order_id is new and has no default"),
    (send(order_id=int), send(order_id=str), "order_id was integer, and is string"),
    (send(x=int | None), send(x=int), "x was integer or null, and is integer"),
    (send(x=Literal["a", "b"]), send(x=Literal["a"]), "x was 'a' or 'b', and is 'a'"),
    (send(x=list[float]), send(x=list[int]), r"x\[\] was number, and is integer"),
    (send(x=dict[str, int]), send(x=dict[str, str]), r"x\.\* was integer"),
    (send("a"), send("b"), r"task a: it is no longer declared.*aliases=\['a'\]"),
]


@pytest.mark.parametrize("before, now, words", BREAKING)
def test_jobs_that_wait_must_still_fit(changed, before, now, words):
    """A parameter that is gone, renamed, needed or narrower is told, with a way out."""
    found = changed(before, now)
    assert found
    text = " ".join(told(found))
    assert text.startswith("task ")
    assert re.search(words, text), text


def one(order_id: int, note: str = ""): ...
def other(note: str, order_id: int): ...
def by_name(*, order_id: int, note: str = ""): ...
def longer(order_id: int, note: str = "", *more: int): ...
def any_args(*args: Any, **kwargs: Any): ...


@pytest.mark.parametrize(
    "before, now, words",
    [
        (one, other, "order_id was at place 1, and is at place 2"),
        (one, by_name, "note was at place 2, and is by name"),
        (longer, one, "it takes no further positional arguments"),
        (one, longer, ""),
        (one, any_args, ""),
    ],
)
def test_a_place_is_kept(changed, before, now, words):
    """A job may have its arguments without their names."""
    of = [lambda each=each: task(name="shop.send")(each) for each in (before, now)]
    found = " ".join(told(changed(*of)))
    assert words in found
    assert bool(words) is bool(found)


@dataclass
class Address:
    city: str


@dataclass
class Place:
    city: str
    country: str = ""


@dataclass
class Tree:
    name: str
    below: list[Tree] = field(default_factory=list)


def orders(**hints):
    """Return what declares a topic; fields as the parameters of send()."""

    def declare():
        fields = [
            (name, each[0], field(default=each[1]))
            if isinstance(each, tuple)
            else (name, each)
            for name, each in hints.items()
        ]
        topic("orders", schema=make_dataclass("Event", fields))

    return declare


SAME = orders(id=int, to=Address)


@pytest.mark.parametrize(
    "now",
    [
        SAME,
        orders(id=int, to=Address, note=(str, "")),
        orders(to=Address, id=(int, 1)),
        orders(id=int, to=Place),
    ],
)
def test_a_topic_may_get_fields_that_have_a_default(changed, now):
    """Its consumers do not look at them, and messages of the log lack them."""
    assert [] == told(changed(SAME, now))


@pytest.mark.parametrize(
    "now, words",
    [
        (orders(to=Address), "id is gone, and consumers read it"),
        (orders(id=int | str, to=Address), "id was integer, and may be integer or str"),
        (orders(id=Any, to=Address), "id was integer, and may be anything"),
        (orders(id=Literal[1], to=Address), "id was integer, and is 1; messages of"),
        (orders(id=int, to=Address, x=int), "x is new and has no default"),
        (orders(id=int, to=make_dataclass("A", [("zip", str)])), "to.city is gone"),
        (lambda: None, "it is no longer declared"),
    ],
)
def test_consumers_and_the_log_go_by_a_topics_fields(changed, now, words):
    """What they read must stay, of the types that they know."""
    found = changed(SAME, now)
    assert words in " ".join(told(found))
    assert {"topic orders"} == {each.subject for each in found}


def test_a_schedule_that_publishes_under_another_name_is_told(changed):
    """Who selects the old one gets nothing; of publish() nobody knows the names."""

    def nightly(name):
        def declare():
            cron("0 3 * * *", tz="UTC", name="nightly")(
                topic("orders").message(name, 1)
            )

        return declare

    found = changed(nightly("orders.a"), nightly("orders.b"))
    assert ["topic orders: no schedule publishes orders.a any more"] == [
        each.split(", and")[0] for each in told(found)
    ]


def test_a_schema_that_holds_itself_is_compared_once(changed):
    """It does not go round for ever."""

    def tree():
        topic("trees", schema=Tree)

    assert [] == changed(tree, tree)
