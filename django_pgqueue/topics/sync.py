"""Sync: the topics, subscriptions and groups that code declares become rows."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import MessagesLost
from django_pgqueue.log import groups, subscriptions
from django_pgqueue.log.declare import declare as declare_topic
from django_pgqueue.log.start import EARLIEST
from django_pgqueue.options.marks import check_tags
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.topics import consume, registry, subscribe
from django_pgqueue.topics.subscribe import Declaration, declared

logger = logging.getLogger("django_pgqueue.topics")


def sync_topics(cursor: Cursor) -> list[str]:
    """
    Write what code declares of topics; return the names of those with something new.

    In the order of their names, so that two workers that start at once do not
    deadlock. The caller has a transaction open.
    """
    return [
        each.name
        for each in registry.declared()
        if declare_topic(
            cursor,
            each.name,
            partitions=each.partitions,
            retain=each.retain,
            retain_bytes=each.retain_bytes,
            wait_for_ingest=each.wait_for_ingest,
            schema=each.schema_name,
        )
    ]


def sync_subscriptions(cursor: Cursor, *, migrates: bool) -> subscriptions.Declared:
    """
    Write what code declares; the caller has a transaction open.

    Args:
        cursor: Of the database of the jobs.
        migrates: Whether this is a migration; see declare_all().

    Raises:
        InvalidOption: The options of a task and PGQUEUE do not go together.
    """
    done = subscriptions.declare_all(cursor, wanted_subscriptions(), migrates=migrates)
    for subscription in done.put_off:
        logger.warning(
            "subscribe  %s: its queue has a subscription to that pattern for another "
            "task, so none was made: if this code is the newer one, run manage.py "
            "migrate",
            subscription,
        )
    for subscription in done.taken:
        logger.warning(
            "subscribe  %s is declared by code, and a user has made it: that one holds",
            subscription,
        )
    return done


def sync_groups(cursor: Cursor) -> list[str]:
    """
    Write what code declares of groups; return the new ones, as "topic/group".

    In the order of their names, so that two workers that start at once do not
    deadlock. The caller has a transaction open. A group that code does not declare any
    more keeps its row and its positions.
    """
    return [str(each) for each in consume.declared() if _sync_group(cursor, each)]


def still_declared(cursor: Cursor) -> None:
    """Note what this code still subscribes to and reads; it is written once an hour."""
    if wanted := wanted_subscriptions():
        subscriptions.declare_again(cursor, wanted)
    if names := [(each.topic, each.group) for each in consume.declared()]:
        groups.declare_again(cursor, names)


def wanted_subscriptions() -> list[subscriptions.Wanted]:
    """Return the rows that code declares, with the options that hold for their jobs."""
    return [_wanted(each) for each in subscribe.declared()]


def declaration_of(consumer: consume.Consumer) -> groups.Declaration:
    """Return what the row of a group says."""
    return groups.Declaration(
        topic=consumer.topic,
        name=consumer.group,
        task=consumer.task.name,
        queue=consumer.queue,
        batch=consumer.batch,
        lease_seconds=consumer.lease.total_seconds(),
        is_atomic=consumer.is_atomic,
        where=None if consumer.where is None else json.loads(consumer.where),
        on_error=consumer.on_error,
        max_attempts=consumer.retry.max_attempts,
        start=consumer.start.text,
        ago=consumer.start.ago,
    )


def _wanted(each: subscribe.Declaration) -> subscriptions.Wanted:
    task = each.task
    resolved = task.resolve(each.queue, get_settings())
    tags = check_tags([*task.options.tags, *each.tags])
    return subscriptions.Wanted(
        queue=each.queue,
        pattern=each.pattern.text,
        task=task.name,
        aliases=task.aliases,
        topic=each.pattern.topic,
        regex=each.pattern.regex,
        payload_filter=each.where,
        priority=resolved.priority if each.priority is None else each.priority,
        max_attempts=each.max_attempts or resolved.retry.max_attempts,
        headers=json.dumps({"tags": list(tags)} if tags else {}, ensure_ascii=False),
        start=each.start.text,
        ago=each.start.ago,
        **({} if each.lane is None else each.lane.columns),
        lane_by=None if each.lane is None else list(each.lane.by),
        backlog_max=None if each.backlog is None else each.backlog.depth_max,
        backlog_on_full=None if each.backlog is None else each.backlog.on_full,
    )


def _sync_group(cursor: Cursor, consumer: consume.Consumer) -> bool:
    declaration = declaration_of(consumer)
    try:
        return groups.declare(cursor, declaration).is_new
    except MessagesLost as error:
        logger.warning(
            "group      %s begins with the earliest message that is left: %s",
            consumer,
            error,
        )
    return groups.declare(cursor, replace(declaration, start=EARLIEST, ago=None)).is_new


# Overlaps -----------------------------------------------------------------------------
# Overlaps: two subscriptions of one queue that a message could both match.
#
# It would make two jobs there, and the queue would get it twice.


def overlaps() -> Iterator[tuple[Declaration, Declaration]]:
    """
    Yield the pairs that code declares.

    By their patterns, whatever names messages have; two that want payloads with
    different contents are taken to part the messages between them.
    """
    for one, other in combinations(declared(), 2):
        if (
            one.queue == other.queue
            and one.pattern.overlaps(other.pattern)
            and _want_the_same(one, other)
        ):
            yield one, other


def _want_the_same(one: Declaration, other: Declaration) -> bool:
    if one.where is None or other.where is None:
        return True
    return bool(json.loads(one.where) == json.loads(other.where))
