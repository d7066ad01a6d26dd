"""One message by itself: what many leave, by a statement that may be prepared."""

from __future__ import annotations

import pytest

from django_pgqueue import topic
from django_pgqueue.models import Job, Message
from django_pgqueue.signals import messages_published
from tests.log.rows import make_group, make_subscription

COLUMNS = ("epoch", "topic_id", "partition", "name", "key", "payload", "headers")


@pytest.fixture
def heard():
    """Return what receivers were told of messages."""
    told = []

    def receive(sender, signal, **fields):
        told.append({**fields, "ids": len(fields["ids"])})

    messages_published.connect(receive)
    yield told
    messages_published.disconnect(receive)


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["orders", "orders.paid", "orders.a.b.c.d.e.f.g"])
def test_one_message_leaves_what_several_do(name, heard):
    """Its row, its jobs and the signal; of short names and of long ones."""
    make_group("orders")
    make_subscription("*", queue="all", headers={"tags": ["x"]})
    make_subscription("orders", queue="fr", payload_filter={"country": "FR"})
    make_subscription("mail", queue="other")
    orders = topic("orders")
    said = {"key": "c7", "headers": {"by": "ada"}}
    payload = {"country": "FR", "note": "é\\"}

    one = orders.publish(name, payload, **said)
    (many,) = orders.publish_many([orders.message(name, payload, **said)])

    rows = Message.objects.filter(id__in=[one, many])
    first, second = rows.order_by("id").values(*COLUMNS)
    assert first == second
    jobs = [
        list(
            Job.objects.filter(message_id=each)
            .order_by("queue")
            .values_list("queue", "task", "headers", "priority", "max_attempts")
        )
        for each in (one, many)
    ]
    assert ["all", "fr"] == [queue for queue, *_ in jobs[0]]
    assert jobs[0] == jobs[1]
    assert heard[0] == heard[1]
