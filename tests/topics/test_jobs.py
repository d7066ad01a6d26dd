"""Jobs of subscriptions are jobs: options, failures, transactions, testing."""

from __future__ import annotations

import pytest

from django_pgqueue import (
    Message,
    Reject,
    RetryLater,
    publish,
    publish_many,
    subscribe,
    topic,
)
from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.models import Message as Row
from django_pgqueue.tasks import operate
from django_pgqueue.testing import assert_enqueued, capture, drain, immediate
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


def keep(message):
    """Keep the payload."""
    SEEN.append(message.payload)


# As those of tasks -------------------------------------------------------------------


def around(context, call_next):
    """Say what it is around."""
    SEEN.append((context.task, context.tags, context.queue))
    return call_next()


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


# With the transaction -----------------------------------------------------------------


# In tests -----------------------------------------------------------------------------


def test_immediate_mode_runs_the_jobs_of_a_message():
    """In the publishing call, as delay() runs its job."""
    listen(keep)
    with immediate():
        publish("orders", 1)
        assert [1] == SEEN
        topic("orders").publish_many([2, 3])
    assert [1, 2, 3] == SEEN
    assert not Job.objects.exists()


def test_capture_and_assert_enqueued_see_them():
    """By task and queue, with the message as it stands in the log."""
    handler = listen(keep, queue="q", tags=["t"])
    with capture() as captured:
        publish("orders", 1)
        publish("mail", 2)
    (job,) = captured
    assert ("q", handler.name) == (job.queue, job.task)
    row = Row.objects.get(name="orders")
    message = Message(
        *(row.id, "orders", "orders", 1),
        published_at=row.published_at,
        partition=row.partition,
    )
    assert_enqueued(handler, message, queue="q", tags=["t"])
    with pytest.raises(AssertionError, match=r"not message #999999 orders\.paid"):
        assert_enqueued(handler, Message(999_999, "orders", "orders.paid", 1))
