"""Overdue: a chore of the leader that cancels workflows whose deadline has passed."""

from __future__ import annotations

import logging

from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.wake import wake
from django_pgqueue.queues import cancel as cancels
from django_pgqueue.queues import workflows
from django_pgqueue.queues.lanes import freed_hints
from django_pgqueue.queues.partitions import make_partitions
from django_pgqueue.tasks.operate import CANCEL_HINT

logger = logging.getLogger("django_pgqueue.worker")

# Between two looks, and how many are cancelled by one.
REST_SECONDS, WORKFLOWS_MAX = 5.0, 100

# Until jobs that somebody held are asked again, and how many are at a time.
ASK_AGAIN_SECONDS, JOBS_MAX = 0.2, 1_000


def cancel_overdue(link: Link) -> float:
    """Cancel what should have ended by now; return how many seconds until the next."""
    with link.cursor() as cursor:
        found = workflows.overdue(cursor, WORKFLOWS_MAX)
    for workflow in found:
        _cancel(link, workflow)
    if len(found) == WORKFLOWS_MAX:
        return 0.0
    return ASK_AGAIN_SECONDS if _ask_again(link) else REST_SECONDS


def _cancel(link: Link, workflow: int) -> None:
    connection = link.connection
    with connection.transaction(), connection.cursor() as cursor:
        # What is cancelled goes to the archive's day.
        make_partitions(cursor)
        started = workflows.cancel(cursor, workflow, is_overdue=True)
        if started is None:
            return
        answer = cancels.cancel(cursor, started, by="deadline")
    _wake(link, answer)
    logger.info("overdue    workflow=%d jobs=%d: cancelled", workflow, len(started))


def _ask_again(link: Link) -> bool:
    """
    Ask those that were passed over; return whether some are left.

    A settle that waits for the workflow's row holds that of its job, and may put it
    back for another attempt. Here no workflow is locked first: the settle ends.
    """
    connection = link.connection
    with link.cursor() as cursor:
        left = workflows.unasked(cursor, workflows=WORKFLOWS_MAX, limit=JOBS_MAX)
    if not left:
        return False
    with connection.transaction(), connection.cursor() as cursor:
        make_partitions(cursor)
        answer = cancels.cancel(cursor, left, by="deadline")
    _wake(link, answer)
    logger.info("overdue    jobs=%d: asked again", len(left))
    return bool(answer.locked) or len(left) == JOBS_MAX


def _wake(link: Link, answer: cancels.CancelAnswer) -> None:
    hints = [CANCEL_HINT] if answer.requested else []
    hints += freed_hints(answer.lanes)
    if hints:
        with link.cursor() as cursor:
            wake(cursor, hints)
