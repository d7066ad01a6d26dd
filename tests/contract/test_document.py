"""Document: what code declares, as AsyncAPI has it, and as it is stored."""

from __future__ import annotations

import json
import re

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from django_pgqueue import topic
from django_pgqueue.contract.document import document, text_of
from django_pgqueue.contract.schemas import follow
from django_pgqueue.tasks.registry import find_task
from django_pgqueue.topics.publish import message
from tests.contract.shop import EVERY_KIND, open_shop


@pytest.fixture
def made(nothing):
    open_shop()
    return document("shop")


def test_the_same_code_makes_the_same_text(nothing):
    """To the byte, and nothing of the machine is in it."""
    open_shop()
    first = text_of(document("shop"))
    nothing()
    open_shop()
    assert first == text_of(document("shop"))


def test_it_has_what_asyncapi_asks_for(made):
    """Follow the names, references and patterns of the specification, version 3.0.0."""
    assert "3.0.0" == made["asyncapi"]
    assert {"title", "version"} == made["info"].keys()
    assert all(re.fullmatch(r"[\w.-]+", key) for key in made["components"]["schemas"])
    for reference in re.findall(r'"\$ref": "([^"]+)"', text_of(made)):
        assert follow(made, reference) is not None, reference


def test_it_names_channels_and_messages(made):
    """Tasks that only get messages are left out."""
    messages = {key: [*each["messages"]] for key, each in made["channels"].items()}
    assert {
        "topic.clicks": ["clicks"],
        "topic.orders": ["orders", "orders.created", "orders.nightly"],
        "topic.payments": ["payments"],
        "queue.default": ["shop.gather", "shop/send~ it"],
        "queue.mail": ["shop.take"],
    } == messages
    assert {"kind": "topic", "declared": True, "partitions": 4} == {
        key: value
        for key, value in made["channels"]["topic.orders"]["x-pgqueue"].items()
        if key != "retain_seconds"
    }
    take = made["channels"]["queue.mail"]["messages"]["shop.take"]
    assert "Take a value of every kind." == take["summary"]
    assert ["shop.old"] == take["x-pgqueue"]["aliases"]


def test_schemas_describe_what_is_stored(made):
    """Arguments of every kind, and payloads of a dataclass and of a model, as JSON."""
    _, kwargs = find_task("shop.take").encode((), {**EVERY_KIND, "x": 1}, 10_000)
    assert [] == errors(made, "queue.mail", "shop.take", kwargs)
    _, kwargs = find_task("shop.take").encode((), {**EVERY_KIND, "day": "x"}, 10_000)
    assert errors(made, "queue.mail", "shop.take", kwargs)
    orders = topic("orders")
    payload = {"id": 1, "to": {"city": "x"}, "price": 5}
    event = orders.message("orders.created", payload).payload_text
    assert ["5 is not of type 'object'"] == errors(
        made, "topic.orders", "orders.created", event
    )
    payment = message("payments", {"id": "0" * 32, "at": "2026-11-26T12:00:00Z"})
    assert [] == errors(made, "topic.payments", "payments", payment.payload_text)


def errors(made, channel, name, text):
    """Return what a validator says about stored text."""
    key = "urn:document"
    schema = made["channels"][channel]["messages"][name]["payload"]
    registry = Registry().with_resource(key, Resource.opaque(made))
    validator = Draft202012Validator(
        {"$ref": key + schema["$ref"]},
        registry=registry,
    )
    return [each.message for each in validator.iter_errors(json.loads(text))]
