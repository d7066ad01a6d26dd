"""Overdue: a chore of the leader that cancels workflows whose deadline has passed."""

from __future__ import annotations

import logging

from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.wake import wake
from django_pgqueue.queues import cancel as cancels
from django_pgqueue.queues import workflows
from django_pgqueue.queues.partitions import make_partitions
from django_pgqueue.tasks.operate import CANCEL_HINT

logger = logging.getLogger("django_pgqueue.worker")

# Between two looks, and how many are cancelled by one.
REST_SECONDS, WORKFLOWS_MAX = 5.0, 100


def cancel_overdue(link: Link) -> float:
    """Cancel what should have ended by now; return how many seconds until the next."""
    with link.cursor() as cursor:
        found = workflows.overdue(cursor, WORKFLOWS_MAX)
    for workflow in found:
        _cancel(link, workflow)
    return 0.0 if len(found) == WORKFLOWS_MAX else REST_SECONDS


def _cancel(link: Link, workflow: int) -> None:
    connection = link.connection
    with connection.transaction(), connection.cursor() as cursor:
        # What is cancelled goes to the archive's day.
        make_partitions(cursor)
        started = workflows.cancel(cursor, workflow, is_overdue=True)
        if started is None:
            return
        answer = cancels.cancel(cursor, started, by="deadline")
    if answer.requested:
        with link.cursor() as cursor:
            wake(cursor, [CANCEL_HINT])
    logger.info("overdue    workflow=%d jobs=%d: cancelled", workflow, len(started))
