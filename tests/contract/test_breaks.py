"""Changes of code that break consumers of a topic, or jobs that wait."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, make_dataclass
from inspect import Parameter, Signature
from typing import Literal

import pytest

from django_pgqueue import task, topic
from django_pgqueue.contract.breaks import breaks
from django_pgqueue.contract.document import document


@pytest.fixture
def changed(nothing):
    """Return a function that returns the breaks between two declarations, as text."""

    def between(before, now):
        documents = []
        for declare in (before, now):
            nothing()
            declare()
            documents.append(document("shop"))
        return " ".join(map(str, breaks(*documents)))

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


def one(order_id: int, note: str = ""): ...
def other(note: str, order_id: int): ...
def longer(order_id: int, note: str = "", *more: int): ...


def function(body):
    """Return what declares a function as a task."""
    return lambda: task(name="shop.send")(body)


@pytest.mark.parametrize(
    "before, now, words",
    [
        (send(order_id=int), send(order_id=int, note=(str, "")), None),
        (send(order_id=int), send(order_id=(int, 5)), None),
        (send(order_id=None), send(order_id=int), None),
        (send("a"), send("b", aliases=["a"]), None),
        (send(order_id=int), send(), "parameter order_id was removed.*keep it, with a"),
        (send(), send(order_id=int), "parameter order_id is required now"),
        (send(order_id=(int, 1)), send(order_id=int), "order_id is required now"),
        (send(order_id=int), send(order_id=str), "was integer, and is string"),
        (send(x=int), send(x=int | None), "x was integer, and is integer or null"),
        (send(x=Literal["a", "b"]), send(x=Literal["a"]), "was 'a' or 'b', and is 'a'"),
        (send(x=list[float]), send(x=list[int]), r"x\.\[\] was number, and is integer"),
        (send(x=dict[str, int]), send(x=dict[str, str]), r"x\.\* was integer"),
        (send("a"), send("b"), r"task a: it is no longer declared.*aliases=\['a'\]"),
        (function(one), function(other), "order .* was order_id, note, and waiting"),
        (function(longer), function(one), r"was order_id, note, \*, and waiting"),
        (function(one), function(longer), None),
    ],
)
def test_jobs_that_wait_must_still_fit(changed, before, now, words):
    """Report removed, required and changed parameters; additions break nothing."""
    text = changed(before, now)
    assert re.search(words, text) if words else "" == text
    assert "" == changed(now, now)


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
    "before, now, words",
    [
        (SAME, orders(to=Address, id=int, note=(str, "")), None),
        (SAME, orders(id=int, to=Place), None),
        (lambda: topic("orders"), SAME, None),
        (orders(tree=Tree), orders(tree=Tree), None),
        (SAME, orders(to=Address), "id was removed.*no consumer reads"),
        (SAME, orders(id=str, to=Address), "id was integer, and is string"),
        (SAME, orders(id=int, to=Address, x=int), "x is required now. Messages in"),
        (
            SAME,
            orders(id=int, to=make_dataclass("A", [("zip", str)])),
            "to.city was removed",
        ),
        (orders(to=Address | None), orders(to=Place | None), None),
        (SAME, lambda: None, "it is no longer declared"),
    ],
)
def test_consumers_and_the_log_depend_on_a_topics_fields(changed, before, now, words):
    """Report removed, required and changed fields, nested ones by their path."""
    text = changed(before, now)
    assert re.search(f"^topic orders: .*{words}", text) if words else "" == text
