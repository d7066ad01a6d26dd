"""Sync of groups: consumer groups that code declares become rows."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

from django_pgqueue.exceptions import MessagesLost
from django_pgqueue.log.groups import Declaration, declare, declare_again
from django_pgqueue.log.start import EARLIEST
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.topics.consume import Consumer, declared

logger = logging.getLogger("django_pgqueue.topics")


def sync_groups(cursor: Cursor) -> list[str]:
    """
    Write what code declares of groups; return the new ones, as "topic/group".

    In the order of their names, so that two workers that start at once do not
    deadlock. The caller has a transaction open. A group that code does not declare any
    more keeps its row and its positions.
    """
    return [str(each) for each in declared() if _sync(cursor, each)]


def still_declared(cursor: Cursor) -> None:
    """Note that this code still declares its groups; once an hour it is written."""
    declare_again(cursor, [(each.topic, each.group) for each in declared()])


def declaration_of(consumer: Consumer) -> Declaration:
    """Return what the row of a group says."""
    return Declaration(
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


def _sync(cursor: Cursor, consumer: Consumer) -> bool:
    declaration = declaration_of(consumer)
    try:
        return declare(cursor, declaration).is_new
    except MessagesLost as error:
        logger.warning(
            "group      %s begins with the earliest message that is left: %s",
            consumer,
            error,
        )
    return declare(cursor, replace(declaration, start=EARLIEST, ago=None)).is_new
