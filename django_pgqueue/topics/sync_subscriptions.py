"""Sync: what code declares becomes rows."""

from __future__ import annotations

import json
import logging

from django_pgqueue.conf import get_settings
from django_pgqueue.log import subscriptions
from django_pgqueue.log.subscriptions import Declared, Wanted
from django_pgqueue.options.checks import check_tags
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.topics.subscribe import Declaration, declared

logger = logging.getLogger("django_pgqueue.topics")


def sync(cursor: Cursor, *, migrates: bool) -> Declared:
    """
    Write what code declares; the caller has a transaction open.

    Args:
        cursor: Of the database of the jobs.
        migrates: Whether this is a migration; see declare_all().

    Raises:
        InvalidOption: The options of a task and PGQUEUE do not go together.
    """
    done = subscriptions.declare_all(cursor, wanted(), migrates=migrates)
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


def still_declared(cursor: Cursor) -> None:
    """Note that this code still declares what it does; once an hour it is written."""
    subscriptions.declare_again(cursor, wanted())


def wanted() -> list[Wanted]:
    """Return the rows that code declares, with the options that hold for their jobs."""
    return [_row(each) for each in declared()]


def _row(each: Declaration) -> Wanted:
    task = each.task
    resolved = task.resolve(each.queue, get_settings())
    tags = check_tags([*task.options.tags, *each.tags])
    return Wanted(
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
    )
