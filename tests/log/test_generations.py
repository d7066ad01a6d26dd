"""A topic's count of partitions changes while it is published to and read."""

import itertools
import random

import pytest
from django.db import connections

from django_pgqueue.exceptions import TopicError
from django_pgqueue.log import generations, merge, positions
from django_pgqueue.log.seek import preview_seek, seek
from django_pgqueue.models import ConsumerGroup, Generation, Message, Position, Topic
from tests.log.log import LEASE, batch, bound_of, make_group, make_topic, put, take

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = [f"k{n}" for n in range(12)]


def change(cursor, partitions, topic="clicks"):
    with cursor.connection.transaction():
        return generations.repartition(cursor, topic, partitions)


def read_on(cursor, group, limit=3):
    """Read one batch as a reader does; return its messages, None: there is nothing."""
    claimed = take(cursor, group)
    if claimed is None:
        return None
    topic = Topic.objects.get(name="clicks")
    bound = bound_of(cursor)
    end = positions.end_of(cursor, group, topic.pk, claimed, bound)
    read = batch(cursor, claimed, limit=limit, bound=end)
    assert positions.advance(cursor, claimed, read.to)
    return read.messages


def read_all(cursor, group, limit=3):
    messages = []
    while (read := read_on(cursor, group, limit)) is not None:
        messages += read
    return messages


def disordered(messages):
    """Return ids that come after a higher one of their key."""
    latest, found = {}, []
    for each in messages:
        if each.id < latest.get(each.key, 0):
            found.append(each.id)
        latest[each.key] = max(each.id, latest.get(each.key, 0))
    return found


def tidy(cursor):
    """Let the leader see to generations, as it does every few seconds."""
    generations.close(cursor)
    for topic in generations.closed(cursor):
        with cursor.connection.transaction():
            generations.finish(cursor, topic)
            generations.drop(cursor, topic)


def test_each_key_keeps_its_order_across_changes(cursor, other_cursor):
    """Up, down and up, also for who publishes by a snapshot of before."""
    make_topic(partitions=4)
    group = make_group(cursor)
    put_all = [put(cursor, n, key=key) for n in range(3) for key in KEYS]
    other_cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    other_cursor.execute("SELECT 1")
    assert 4 == change(cursor, 6)
    put_all += [put(cursor, n, key=key) for n in range(3) for key in KEYS]
    first = [message for _ in range(5) for message in read_on(cursor, group)]
    late = [put(other_cursor, n, key=key) for n in range(3) for key in KEYS]
    other_cursor.execute("COMMIT")
    put_all += late + [put(cursor, n, key=key) for n in range(3) for key in KEYS]
    assert 6 == change(cursor, 3)
    put_all += [put(cursor, n, key=key) for n in range(3) for key in KEYS]

    messages = first + read_all(cursor, group)

    assert [] == disordered(messages)
    ids = sorted(each for (each,) in put_all)
    assert ids == sorted(each.id for each in messages)
    of_late = Message.objects.filter(id__in=[each for (each,) in late])
    assert set(range(4)) >= set(of_late.values_list("partition", flat=True))
    assert {4, 5, 6, 7, 8, 9, 10, 11, 12} >= set(
        Message.objects.exclude(partition__lt=4).values_list("partition", flat=True)
    )
