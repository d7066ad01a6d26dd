"""topic(), publish() and publish_many(): what Python stores and refuses."""

import dataclasses

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_pgqueue import (
    InvalidArgument,
    InvalidOption,
    PayloadTooLarge,
    TopicError,
    WrongDatabase,
    apublish,
    apublish_many,
    publish,
    publish_many,
    topic,
)
from django_pgqueue.log.message import Message as Published
from django_pgqueue.models import Message, Topic
from django_pgqueue.signals import messages_published
from django_pgqueue.topics import registry
from django_pgqueue.topics.sync import sync_topics
from tests.log.test_publish import subscribe

pytestmark = pytest.mark.django_db


@dataclasses.dataclass
class OrderEvent:
    id: int
    country: str = "DE"


@pytest.fixture(autouse=True)
def _declared(monkeypatch):
    monkeypatch.setattr(registry, "_declared", {})


def stored():
    return list(Message.objects.order_by("id").values_list("name", "key", "payload"))


def test_a_message_has_the_topics_name_or_its_own():
    """The id of its row comes back."""
    orders = topic("orders")
    first = orders.publish({"id": 1}, key="c7", headers={"from": "web"})
    second = orders.publish("orders.paid", {"id": 1})
    third = publish("orders.paid", [1], key=5)

    assert [first, second, third] == list(
        Message.objects.order_by("id").values_list("id", flat=True)
    )
    assert [
        ("orders", "c7", {"id": 1}),
        ("orders.paid", None, {"id": 1}),
        ("orders.paid", "5", [1]),
    ] == stored()
    assert {"from": "web"} == Message.objects.get(id=first).headers


def test_many_are_published_in_their_order():
    """Payloads with a key of theirs, or messages of several topics."""
    clicks = topic("clicks")
    ids = clicks.publish_many([{"n": n, "by": f"v{n}"} for n in range(600)], key="by")
    assert ids == sorted(ids)
    assert [
        ("clicks", f"v{n}", {"n": n, "by": f"v{n}"}) for n in range(600)
    ] == stored()

    Message.objects.all().delete()
    others = publish_many(
        [
            topic("b").message("b.x", 1),
            topic("a").message("a.x", 2, key="k"),
            topic("b").message("b.y", 3),
        ]
    )
    found = dict(Message.objects.values_list("id", "name"))
    assert ["b.x", "a.x", "b.y"] == [found[each] for each in others]
    assert [] == clicks.publish_many([]) == publish_many([])


def test_async_code_publishes_in_the_same_transaction():
    """The twins return what the others do."""

    async def run():
        one = await apublish("a.b", 1)
        two = await topic("a").apublish(2)
        more = await topic("a").apublish_many([3])
        last = await apublish_many([topic("a").message(4)])
        return [one, two, *more, *last]

    ids = async_to_sync(run)()
    assert [1, 2, 3, 4] == [
        Message.objects.get(id=message_id).payload for message_id in ids
    ]


def test_a_dataclass_checks_its_fields():
    """An instance, or a dict that would make one; read() gives one back."""
    orders = topic("orders", schema=OrderEvent)
    orders.publish(OrderEvent(1))
    orders.publish({"id": 2})
    orders.publish_many([{"id": 3}, OrderEvent(4)])
    assert [1, 2, 3, 4] == [payload["id"] for _, _, payload in stored()]
    assert {"id": 2, "country": "DE"} == stored()[1][2]
    message = Published(id=1, topic="orders", name="orders", payload={"id": 2})
    assert OrderEvent(2) == orders.read(message)
    for bad in ({"ident": 1}, {}, 5):
        with pytest.raises(TopicError, match="does not fit OrderEvent"):
            orders.publish("orders.paid", bad)
        with pytest.raises(TopicError, match="does not fit OrderEvent"):
            publish("orders.paid", bad)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: publish("a b", 1), TopicError, "cannot be called 'a b'"),
        (lambda: topic("a").publish("b.c", 1), TopicError, r"'a\.b\.c'"),
        (lambda: topic("a").publish(), TopicError, "0 arguments"),
        (lambda: publish("a", object()), InvalidArgument, "a: payload is a"),
        (lambda: publish("a", 1, key=""), TopicError, "0 characters"),
        (lambda: publish("a", 1, headers={"pgqueue.x": 1}), InvalidOption, "reserved"),
        (lambda: publish("a", "x" * 2_000_000), PayloadTooLarge, "payload and headers"),
        (
            lambda: topic("a").publish_many([{"x": 1}], key="y"),
            TopicError,
            "'y' is no field",
        ),
        (
            lambda: topic("a").publish_many([topic("b").message(1)]),
            TopicError,
            "topic 'a'",
        ),
        (lambda: publish_many([{"x": 1}]), TopicError, "item 0"),
        (lambda: topic("a", partitions=0), TopicError, "1 to 256"),
        (lambda: topic("a", retain="x"), TopicError, "no duration"),
        (lambda: topic("a", retain_bytes="1kB"), TopicError, "from 1,048,576 to"),
        (lambda: topic("a", schema=dict), TopicError, "dataclass"),
    ],
)
def test_what_cannot_be_is_refused_before_sql(
    call, error, words, django_assert_num_queries
):
    """With the value and the limit; the caller's transaction stays usable."""
    with django_assert_num_queries(0), pytest.raises(error, match=words):
        call()
    assert [] == stored()


@pytest.mark.django_db(databases=["default", "queue"])
def test_a_transaction_on_another_database_is_refused():
    """The message would not roll back with it; the error says how to do it."""
    with (
        transaction.atomic(using="queue"),
        pytest.raises(WrongDatabase, match="on_commit"),
    ):
        publish("a", 1)


def test_declared_topics_become_rows():
    """Their partitions stay what they were when the row was made; the rest follows."""
    topic("orders", partitions=4, retain="2d", schema=OrderEvent)
    topic("mail", partitions=2)
    with connection.cursor() as cursor:
        assert ["mail", "orders"] == sync_topics(cursor)
        assert [] == sync_topics(cursor)
        registry._declared.clear()
        topic("orders", partitions=8, retain="3d")
        assert ["orders"] == sync_topics(cursor)
    row = Topic.objects.get(name="orders")
    assert (4, 3, None) == (row.partitions, row.retain.days, row.schema)
    assert 8 == row.declared["partitions"]


def test_receivers_hear_of_what_is_published():
    """Once for each topic, with the ids and how many jobs came of them."""
    heard = []

    def receiver(**told):
        heard.append((told["topic"], told["ids"], told["jobs"]))

    subscribe("a.*", "q")
    messages_published.connect(receiver)
    try:
        ids = publish_many([topic("a").message("a.x", 1), topic("b").message(2)])
    finally:
        messages_published.disconnect(receiver)
    assert [("a", [ids[0]], 1), ("b", [ids[1]], 0)] == heard


@pytest.mark.django_db(transaction=True)
def test_without_a_transaction_one_message_is_one_statement(
    django_assert_num_queries,
):
    """And many of one topic, too; of several topics they are all or nothing."""
    publish("a", 1)
    with django_assert_num_queries(1):
        publish("a", 2)
    with django_assert_num_queries(1):
        topic("a").publish_many(range(100))
    with pytest.raises(TopicError), CaptureQueriesContext(connection) as queries:
        publish_many([topic("a").message(1), topic("b").message(1), 5])
    assert 0 == len(queries)
