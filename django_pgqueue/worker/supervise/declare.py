"""Declare: a worker that starts writes what the code has, and says what differs."""

from __future__ import annotations

import logging

from django_pgqueue.exceptions import PgQueueError, ScheduleError
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.wake import wake
from django_pgqueue.schedules.declare import declared
from django_pgqueue.schedules.store import HINT
from django_pgqueue.schedules.sync import sync
from django_pgqueue.topics import registry
from django_pgqueue.topics.consume import declared as consumers_declared
from django_pgqueue.topics.subscribe import declared as subscribed
from django_pgqueue.topics.sync import sync_groups, sync_subscriptions, sync_topics
from django_pgqueue.workflows.versions import others_under_way

logger = logging.getLogger("django_pgqueue.worker")


def declare(link: Link) -> None:
    """Write what the code declares; a mistake there does not stop a worker."""
    if registry.declared():
        with link.transaction() as cursor:
            for name in sync_topics(cursor):
                logger.info("declared   topic=%s", name)
    if declared():
        _declare_schedules(link)
    if subscribed():
        _declare_subscriptions(link)
    if consumers_declared():
        with link.transaction() as cursor:
            for name in sync_groups(cursor):
                logger.info("declared   group=%s", name)
    with link.cursor() as cursor:
        for name, count in others_under_way(cursor).items():
            logger.info(
                "unchanged  saga=%s under_way=%d: began with other steps, keep them",
                name,
                count,
            )


def _declare_schedules(link: Link) -> None:
    try:
        with link.transaction() as cursor:
            synced = sync(cursor, migrates=False)
    except ScheduleError as error:
        logger.error("failed     schedules: %s", error)
        return
    for name in synced.changed:
        logger.info("declared   schedule=%s", name)
    if synced.changed:
        with link.cursor() as cursor:
            wake(cursor, [HINT])


def _declare_subscriptions(link: Link) -> None:
    try:
        with link.transaction() as cursor:
            done = sync_subscriptions(cursor, migrates=False)
    except PgQueueError as error:
        logger.error("failed     subscriptions: %s", error)
        return
    for name in [*done.added, *done.changed]:
        logger.info("declared   subscription=%s", name)
