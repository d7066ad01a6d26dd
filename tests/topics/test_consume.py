"""@consume: what can be declared, and what becomes of it."""

import pytest
from django.db import connections, transaction

from django_pgqueue import DeclarationError, Retry, TopicError, consume
from django_pgqueue.models import ConsumerGroup, Position
from django_pgqueue.topics.consume import declared
from django_pgqueue.topics.sync import sync_groups


def count(messages):
    """Take a batch."""


def test_a_consumer_is_a_task_of_one_argument():
    """With its defaults; a dead letter of it can be redriven."""
    made = consume("clicks", group="stats")(count)

    (said,) = declared()
    assert (made, "clicks", "stats", 500, False, "skip", 5, 60.0, "default", 1) == (
        said.task,
        said.topic,
        said.group,
        said.batch,
        said.is_atomic,
        said.on_error,
        said.retry.max_attempts,
        said.lease.total_seconds(),
        said.queue,
        said.readers,
    )
    assert ("clicks/stats", None, "latest") == (str(said), said.where, said.start.text)
    made([])


@pytest.mark.parametrize(
    "said, error, message",
    [
        ({"batch": 0}, DeclarationError, "batch=0"),
        ({"batch": 10_001}, DeclarationError, "from 1 to 10,000"),
        ({"batch_bytes": 1_023}, DeclarationError, "from 1,024 to 1,073,741,824"),
        ({"readers": 257}, DeclarationError, "from 1 to 256"),
        ({"on_error": "drop"}, DeclarationError, "'skip', 'retry' or 'halt'"),
        ({"lease": "10ms"}, DeclarationError, "from 1 second to 1 day"),
        ({"queue": "a b"}, DeclarationError, "queue"),
        ({"mode": "stream"}, DeclarationError, "'batch' or 'per-message'"),
        ({"group": "a.b"}, TopicError, "group='a.b'"),
        ({"start": "noon"}, TopicError, "start='noon'"),
        ({"where": ["a"]}, TopicError, "where="),
        ({"retries": -1}, DeclarationError, "retries=-1"),
        ({"retries": Retry(max_age="1h")}, DeclarationError, "may be old when a group"),
        (
            {"ack_policy": "manual", "atomic": True},
            DeclarationError,
            "for all messages or for none",
        ),
        ({"ack_policy": "first", "atomic": True}, DeclarationError, "contradict"),
        ({"mode": "per-message", "batch": 5}, DeclarationError, "batch=5"),
    ],
)
def test_what_cannot_be_is_refused(said, error, message):
    """At once, and the error says what can."""
    with pytest.raises(error, match=message):
        consume("clicks", **{"group": "stats", **said})(count)


@pytest.mark.django_db(transaction=True)
def test_a_deploy_makes_the_rows():
    """A second one changes what it says, and not where it is."""
    consume("clicks", group="stats", start="earliest", queue="slow")(count)

    with transaction.atomic(), connections["default"].cursor() as cursor:
        assert ["clicks/stats"] == sync_groups(cursor)
    Position.objects.update(position=7)
    consume("clicks", group="stats", start="latest", batch=9)(count)
    with transaction.atomic(), connections["default"].cursor() as cursor:
        assert [] == sync_groups(cursor)
    row = ConsumerGroup.objects.get()
    assert (9, "default", "earliest", {7}, 16) == (
        row.batch,
        row.queue,
        row.start,
        set(Position.objects.values_list("position", flat=True)),
        Position.objects.count(),
    )
