"""Jobs of subscriptions are jobs: options, failures, transactions, testing."""

from __future__ import annotations

import pytest

from django_pgqueue import (
    Reject,
    RetryLater,
    publish,
    publish_many,
    subscribe,
    topic,
)
from django_pgqueue.models import ArchivedJob, DeadLetter
from django_pgqueue.tasks import operate
from django_pgqueue.testing import drain
from tests.app.models import Order
from tests.topics.conftest import deploy

pytestmark = pytest.mark.django_db(transaction=True)

SEEN: list[object] = []


@pytest.fixture(autouse=True)
def _nothing_seen():
    SEEN.clear()


def listen(function, pattern="orders", **said):
    made = subscribe(pattern, **{"name": "shop.handler", **said})(function)
    deploy()
    return made


# As those of tasks -------------------------------------------------------------------


def test_failures_are_retried_and_then_dead():
    """By the retries of the subscription; a redrive runs it with its message."""

    def handler(message):
        SEEN.append(message.id)
        if len(SEEN) < 3:
            raise RetryLater(0)

    listen(handler, retries=1)
    message_id = publish("orders", 1)
    drain(retries=True)
    letter = DeadLetter.objects.get()
    assert ("exhausted", message_id, 2) == (
        letter.reason,
        letter.message_id,
        letter.attempt,
    )
    operate.redrive([letter.pk])
    drain()
    assert [message_id] * 3 == SEEN
    assert message_id == ArchivedJob.objects.get().message_id


def test_an_atomic_handler_writes_once():
    """What it has written goes with its failure."""

    def handler(message):
        Order.objects.create(name=message.payload)
        if message.payload == "bad":
            raise Reject("bad")

    listen(handler, atomic=True)
    publish_many([topic("orders").message(each) for each in ("good", "bad")])
    drain()
    assert ["good"] == list(Order.objects.values_list("name", flat=True))
