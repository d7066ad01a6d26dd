"""Publishing in SQL: the log, the jobs, the lock."""

import json

import pytest

from django_pgqueue.log.horizon import horizons
from django_pgqueue.log.names import Pattern
from django_pgqueue.log.publish import publish
from django_pgqueue.models import Job, Message, Subscription, Topic
from django_pgqueue.postgres import keys
from django_pgqueue.postgres.bulk import Items

pytestmark = pytest.mark.django_db(transaction=True)

LOCKS = """
SELECT classid::bigint - %s, objid::bigint FROM pg_locks
 WHERE locktype = 'advisory' AND mode = 'ShareLock'
"""


def items(*payloads, name="orders", key=None):
    return [Items(json.dumps([name, key, each, {}]), 1) for each in payloads]


def subscribe(pattern, queue="default", task="t", **columns):
    parsed = Pattern.parse(pattern)
    return Subscription.objects.create(
        pattern=pattern,
        topic=parsed.topic,
        regex=parsed.regex,
        queue=queue,
        task=task,
        **columns,
    )


def test_messages_stand_in_the_log_in_their_order(cursor):
    """With ids that rise in the order of the call, in the topic's partitions."""
    stored = publish(cursor, "orders", items(*range(50)))

    rows = list(Message.objects.order_by("id").values_list("id", "payload"))
    assert list(zip(stored.ids, range(50), strict=True)) == rows
    assert set(Message.objects.values_list("partition", flat=True)) <= set(range(16))
    assert ({"orders"}, 16) == (
        set(Topic.objects.values_list("name", flat=True)),
        Topic.objects.get().partitions,
    )


def test_messages_of_one_key_share_a_partition(cursor):
    """And different keys use all of them."""
    for n in range(100):
        publish(cursor, "orders", items(1, 2, key=f"k{n}"))

    places = set(Message.objects.values_list("key", "partition"))
    assert 100 == len(places)
    assert set(range(16)) == {partition for _, partition in places}


def test_each_matching_subscription_gets_a_job_that_refers_to_the_message(cursor):
    """By pattern and by what the payload contains; the payload is not copied."""
    subscribe("orders", "all", task="a", priority=3, max_attempts=2)
    subscribe("orders.paid", "paid", headers={"tags": ["x"]})
    subscribe("*.paid", "any", payload_filter={"country": "FR"})
    subscribe("mail.*", "mail")
    subscribe("orders", "off", disabled_at="2026-01-01T00:00Z")

    stored = publish(
        cursor,
        "orders",
        items({"country": "FR", "n": 1}, {"country": "DE"}, name="orders.paid"),
    )

    first, second = stored.ids
    assert ({"all", "paid", "any"}, 5) == (stored.queues, stored.jobs)
    assert [
        ("all", first),
        ("all", second),
        ("any", first),
        ("paid", first),
        ("paid", second),
    ] == list(Job.objects.order_by("queue", "id").values_list("queue", "message_id"))
    job = Job.objects.filter(queue="all").order_by("id").first()
    assert ("a", 3, 2) == (job.task, job.priority, job.max_attempts)
    (reference,) = job.args
    assert ("message", first) == (reference["__pgqueue__"], reference["value"][0])
    assert {"tags": ["x"]} == Job.objects.filter(queue="paid").first().headers


def test_a_transaction_takes_one_lock_for_each_topic(cursor):
    """However often it publishes; and readers stay before its first id."""
    publish(cursor, "orders", items(0))
    (before,) = publish(cursor, "orders", items(1)).ids
    with cursor.connection.transaction():
        for _ in range(5):
            publish(cursor, "orders", items(1, 2))
        publish(cursor, "mail", items(1, name="mail"))
        cursor.execute(LOCKS, [keys.TOPICS])
        held = cursor.fetchall()
        orders = Topic.objects.get(name="orders").id
        assert 2 == len(held)
        assert (orders, before) in held
        bounds = horizons(cursor)
        assert before == bounds.of(orders)
        assert bounds.highest == bounds.of(10_000) == before + 11
    assert bounds.highest == horizons(cursor).of(orders)


def test_a_savepoint_that_rolls_back_gives_the_lock_back(cursor):
    """What is published after it takes a new one, before its own ids."""
    publish(cursor, "orders", items(0))
    with cursor.connection.transaction():
        try:
            with cursor.connection.transaction():
                publish(cursor, "orders", items(1))
                raise ValueError
        except ValueError:
            pass
        cursor.execute(LOCKS, [keys.TOPICS])
        assert [] == cursor.fetchall()
        (mine,) = publish(cursor, "orders", items(1)).ids
        assert mine > horizons(cursor).of(Topic.objects.get().id)


def test_sql_publishes_and_wakes(cursor, new_cursor):
    """pgqueue_publish() does what publish() does, and notifies its queues and topic."""
    subscribe("orders.paid", "billing")
    listener = new_cursor()
    listener.execute("SELECT pgqueue_channel()")
    (channel,) = listener.fetchone()
    listener.execute(f"LISTEN {channel}")
    cursor.execute("""SELECT pgqueue_publish('orders.paid', '{"n": 1}', 'k')""")
    (message_id,) = cursor.fetchone()

    heard = next(listener.connection.notifies(timeout=10))
    assert "billing" == heard.payload
    assert message_id == Job.objects.get().message_id
    message = Message.objects.get()
    assert ("orders.paid", "k", {"n": 1}) == (
        message.name,
        message.key,
        message.payload,
    )


@pytest.mark.parametrize("name", ["", "a b", "a..b", "a.", "é", "x" * 64])
def test_sql_refuses_what_is_no_name(cursor, name):
    """With the name, before anything is stored."""
    with pytest.raises(Exception, match="cannot be called"):
        cursor.execute("SELECT pgqueue_publish(%s, '1')", [name])
    assert not Message.objects.exists()
