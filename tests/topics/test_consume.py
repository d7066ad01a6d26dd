"""@consume: what can be declared, and what becomes of it."""

from datetime import timedelta

import pytest
from django.db import connections, transaction

from django_pgqueue import DeclarationError, Retry, TopicError, consume, task, topic
from django_pgqueue.models import ConsumerGroup, Position
from django_pgqueue.topics.consume import declared
from django_pgqueue.topics.sync import sync_groups


def count(messages):
    """Take a batch."""


def other(messages):
    """Take a batch elsewhere."""


async def later(messages):
    """Take a batch in an event loop."""


def takes_nothing():
    """Take no batch."""


def generator(messages):
    """Yield, which nobody would ask for."""
    yield messages


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


def test_what_a_consumer_can_be_told():
    """A topic() will do for its name; an async function too."""
    consume(
        topic("clicks"),
        group="stats",
        start="60 days ago",
        batch=7,
        where={"country": "FR"},
        on_error="halt",
        retries=Retry(max_attempts=9),
        lease="5m",
        queue="slow",
        readers=3,
    )(later)

    (said,) = declared()
    assert (7, '{"country":"FR"}', "halt", 9, 300.0, "slow", 3) == (
        said.batch,
        said.where.replace(" ", ""),
        said.on_error,
        said.retry.max_attempts,
        said.lease.total_seconds(),
        said.queue,
        said.readers,
    )
    assert (timedelta(days=60), True) == (said.start.ago, said.task.options.is_async)


@pytest.mark.parametrize(
    "said, error, message",
    [
        ({"batch": 0}, DeclarationError, "batch=0"),
        ({"batch": 10_001}, DeclarationError, "from 1 to 10,000"),
        ({"batch": True}, DeclarationError, "batch=True"),
        ({"batch_bytes": 1_023}, DeclarationError, "from 1,024 to 1,073,741,824"),
        ({"batch_bytes": "2 GiB"}, DeclarationError, "batch_bytes is '2 GiB'"),
        ({"batch_bytes": "much"}, DeclarationError, "which is no size"),
        ({"batch_bytes": True}, DeclarationError, "batch_bytes is True"),
        (
            {"mode": "per-message", "batch_bytes": "1MB"},
            DeclarationError,
            "batch_bytes",
        ),
        ({"readers": 257}, DeclarationError, "from 1 to 256"),
        ({"on_error": "drop"}, DeclarationError, "'skip', 'retry' or 'halt'"),
        ({"lease": "10ms"}, DeclarationError, "from 1 second to 1 day"),
        ({"lease": "2d"}, DeclarationError, "from 1 second to 1 day"),
        ({"lease": "soon"}, DeclarationError, "lease"),
        ({"queue": "a b"}, DeclarationError, "queue"),
        ({"mode": "stream"}, DeclarationError, "'batch' or 'per-message'"),
        ({"group": "a.b"}, TopicError, "group='a.b'"),
        ({"start": "noon"}, TopicError, "start='noon'"),
        ({"where": ["a"]}, TopicError, "where="),
        ({"retries": -1}, DeclarationError, "retries=-1"),
        ({"retries": None}, DeclarationError, "retries=None"),
        ({"retries": Retry(max_age="1h")}, DeclarationError, "may be old when a group"),
        (
            {"ack_policy": "manual", "atomic": True},
            DeclarationError,
            "for all messages or for none",
        ),
        ({"ack_policy": "first", "atomic": True}, DeclarationError, "contradict"),
        ({"atomic": 1}, DeclarationError, "atomic=1"),
        ({"mode": "per-message", "batch": 5}, DeclarationError, "batch=5"),
        ({"mode": "per-message", "readers": 2}, DeclarationError, "readers=2"),
    ],
)
def test_what_cannot_be_is_refused(said, error, message):
    """At once, and the error says what can."""
    with pytest.raises(error, match=message):
        consume("clicks", **{"group": "stats", **said})(count)


@pytest.mark.parametrize(
    "function, said, message",
    [
        (generator, {}, "is a generator"),
        (lambda: None, {}, "must be defined at module level"),
        (task(other), {}, "goes on a function"),
        (later, {"atomic": True}, "atomic=True is for plain functions"),
        (takes_nothing, {}, "must take one argument"),
    ],
)
def test_a_function_that_cannot_take_a_batch_is_refused(function, said, message):
    """Whoever would find out only with the first message."""
    with pytest.raises(DeclarationError, match=message):
        consume("clicks", group="stats", **said)(function)


def test_a_group_has_one_function():
    """The same one may be declared again, as a reload does."""
    consume("clicks", group="stats")(count)
    consume("clicks", group="stats", batch=7)(count)
    consume("clicks", group="others")(other)

    with pytest.raises(TopicError, match="Two functions read 'clicks' as the group"):
        consume("clicks", group="stats")(later)
    assert [7, 500] == [each.batch for each in reversed(declared())]


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
