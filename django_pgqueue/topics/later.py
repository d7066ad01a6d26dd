"""
Later: the task that publishes what publish(run_after=…) has stored.

Every process that knows tasks loads this, so what it calls is imported when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, connections, transaction

from django_pgqueue.bounds import ATTEMPTS_MAX, PUBLISH_QUEUE, PUBLISH_TASK
from django_pgqueue.conf import get_settings
from django_pgqueue.options.retry import Retry
from django_pgqueue.tasks.context import JobContext
from django_pgqueue.tasks.declare import task
from django_pgqueue.tasks.raised import Snooze

# When the job looks again while its row is locked, such as by an open cancel.
AGAIN = timedelta(seconds=1)


@task(
    name=PUBLISH_TASK,
    queue=PUBLISH_QUEUE,
    takes_context=True,
    atomic=True,
    archive=False,
    timeout="5m",
    retries=Retry(max_attempts=ATTEMPTS_MAX, base="1s", cap="64s", jitter="none"),
)
def publish_later(ctx: JobContext, /, message: Mapping[str, Any]) -> None:
    """
    Publish the message of this job in the transaction that ends the job.

    Messages of its topic that are due behind it are published with it, in order. If
    that fails it is published alone, so that no message keeps another one waiting.
    """
    from django_pgqueue.log import publish as storage
    from django_pgqueue.topics.publish import announce

    connection = connections[get_settings().database]
    try:
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            published = storage.publish_later(cursor, ctx.id, with_others=True)
    except DatabaseError:
        with connection.cursor() as cursor:
            published = storage.publish_later(cursor, ctx.id, with_others=False)
    if published is None:
        raise Snooze(AGAIN)
    announce(connection, *published)
