"""Rows of topics, any column overridable; times count from now, as factories.py."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import connections, router

from django_pgqueue.log.names import Pattern, topic_of
from django_pgqueue.models import (
    ConsumerGroup,
    InboxEntry,
    Message,
    Position,
    Subscription,
    Topic,
)
from tests.harness.factories import _make

NEXT_ID = """
SELECT nextval('pgqueue_message_id_seq'),
       pgqueue_make_log_day(((clock_timestamp() + %s) AT TIME ZONE 'UTC')::date)
"""


def make_topic(
    name: str = "orders", *, using: str | None = None, **columns: Any
) -> Any:
    """Insert a topic that nobody has declared; or return the one of this name."""
    using = using or router.db_for_write(Topic)
    found = Topic.objects.using(using).filter(name=name).first()
    return found or _make(Topic, using, {"name": name, **columns})


def make_message(
    name: str = "orders",
    payload: Any = None,
    *,
    using: str | None = None,
    published_at: timedelta = timedelta(0),
    **columns: Any,
) -> Any:
    """Insert a message of the topic that its *name* says, in partition 0."""
    using = using or router.db_for_write(Message)
    with connections[using].cursor() as cursor:
        cursor.execute(NEXT_ID, [published_at])
        columns = {"id": cursor.fetchone()[0], **columns}
    if "topic_id" not in columns:
        columns["topic_id"] = make_topic(topic_of(name), using=using).pk
    defaults = {
        "name": name,
        "partition": 0,
        "payload": {} if payload is None else payload,
        "published_at": published_at,
    }
    return _make(Message, using, {**defaults, **columns})


def make_inbox_entry(
    source: str = "stripe",
    external_id: str = "evt_1",
    *,
    using: str | None = None,
    **columns: Any,
) -> Any:
    """Insert what has come in from outside just now."""
    named = {"source": source, "external_id": external_id}
    return _make(InboxEntry, using, {**named, **columns})


def make_subscription(
    pattern: str = "orders.*", *, using: str | None = None, **columns: Any
) -> Any:
    """Insert a subscription of code, declared a minute ago."""
    parsed = Pattern.parse(pattern)
    defaults = {
        "pattern": pattern,
        "topic": parsed.topic,
        "regex": parsed.regex,
        "source": "code",
        "task": "tests.app.tasks.noop",
        "last_declared_at": -timedelta(minutes=1),
    }
    return _make(Subscription, using, {**defaults, **columns})


def make_group(
    topic: str = "orders",
    name: str = "stats",
    *,
    positions: int | None = None,
    using: str | None = None,
    **columns: Any,
) -> Any:
    """Insert a group that has read nothing, with a position in each partition."""
    row = make_topic(topic, using=using)
    defaults = {
        "topic_id": row.pk,
        "topic": topic,
        "name": name,
        "task": "tests.app.tasks.noop",
        "last_declared_at": -timedelta(minutes=1),
    }
    group = _make(ConsumerGroup, using, {**defaults, **columns})
    for partition in range(row.partitions if positions is None else positions):
        make_position(group, partition, using=using)
    return group


def make_position(
    group: Any, partition: int = 0, *, using: str | None = None, **columns: Any
) -> Any:
    """Insert where a group is in one partition, instead of the row that is there."""
    using = using or router.db_for_write(Position)
    place = {"group_id": group.pk, "partition": partition}
    Position.objects.using(using).filter(**place).delete()
    return _make(Position, using, {**place, **columns})


FILL = """
INSERT INTO pgqueue_message (published_at, topic_id, partition, name, key, payload)
SELECT %(day)s::date + interval '12 hours', %(topic)s, n %% 4, 'clicks', 'c' || n,
       jsonb_build_object('text', (SELECT string_agg(md5((n * 1000 + i)::text), '')
                                     FROM generate_series(1, %(size)s) i))
  FROM generate_series(1, %(n)s) n
"""


def fill_day(cursor, topic, day, *, n, size):
    """Publish messages of 32 characters times *size*, which no compression shortens."""
    cursor.execute(FILL, {"day": day, "topic": topic.pk, "n": n, "size": size})
