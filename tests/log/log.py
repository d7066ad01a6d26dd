"""Messages and groups for tests of the log, in a few words."""

import json
from datetime import timedelta

from django_pgqueue.log.groups import Declaration, declare
from django_pgqueue.log.horizon import horizons
from django_pgqueue.log.positions import claim
from django_pgqueue.log.publish import publish
from django_pgqueue.log.read import read
from django_pgqueue.models import Topic
from django_pgqueue.postgres.bulk import Items

LEASE = timedelta(seconds=60)


def put(cursor, *payloads, topic="clicks", key="k", name=None):
    """Publish messages; return their ids."""
    name = name or topic
    items = [Items(json.dumps([name, key, each, {}]), 1) for each in payloads]
    return publish(cursor, topic, items).ids


def make_topic(name="clicks", partitions=1, **columns):
    return Topic.objects.create(name=name, partitions=partitions, **columns)


def make_group(cursor, topic="clicks", name="g", **said):
    """Declare a group that begins with what is there; return its id."""
    said = {"task": "tests.noop", "start": "earliest", **said}
    with cursor.connection.transaction():
        return declare(cursor, Declaration(topic=topic, name=name, **said)).id


def bound_of(cursor, topic="clicks"):
    return horizons(cursor).of(Topic.objects.get(name=topic).pk)


def take(cursor, group, *, worker="w1", topic="clicks", lease=LEASE):
    """Claim a partition, up to the horizon of now."""
    bound = bound_of(cursor, topic)
    return claim(cursor, group, worker=worker, lease=lease, bound=bound)


def batch(cursor, claimed, *, topic="clicks", limit=500, bound=None, **said):
    """Read what was claimed."""
    row = Topic.objects.get(name=topic)
    return read(
        cursor,
        topic=topic,
        topic_id=row.pk,
        partition=claimed.partition,
        after=claimed.position,
        bound=bound_of(cursor, topic) if bound is None else bound,
        limit=limit,
        **said,
    )


def payloads(read_batch):
    return [message.payload for message in read_batch.messages]
