"""
Overdue: chores of the leader for what is to happen by itself after a while.

They cancel workflows whose deadline has passed, make calls again that are to be
repeated, and end what new counts of partitions have begun.
"""

from __future__ import annotations

import logging

from django_pgqueue.log import generations
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.postgres.wake import wake
from django_pgqueue.queues import cancel as cancels
from django_pgqueue.queues import workflows
from django_pgqueue.queues.lanes import freed_hints
from django_pgqueue.queues.unique import REPEAT_CALLS_MAX, Repeated, repeat_calls
from django_pgqueue.tasks.operate import CANCEL_HINT

# A job had been due for ten seconds when such a call met it; and an idle worker asks
# the database less than twice a second in all.
LOOK_SECONDS = 5.0


def repeat(link: Link) -> float:
    """Make calls again; return how many seconds until the next look."""
    with link.cursor() as cursor:
        repeated = repeat_calls(cursor)
        wake(cursor, sorted({one.queue for one in repeated if one.outcome == "stored"}))
    _log(repeated)
    done = sum(not _is_left(one) for one in repeated)
    return 0.0 if done == REPEAT_CALLS_MAX else LOOK_SECONDS


def _log(repeated: list[Repeated]) -> None:
    stored = sum(one.outcome == "stored" for one in repeated)
    if stored:
        logger.info("stored     jobs=%d for calls that met late jobs", stored)
    failed = [one for one in repeated if one.outcome.startswith("failed")]
    for one in failed[:1]:
        logger.error(
            "failed     calls=%d that met late jobs, such as job=%d: %s",
            len(failed),
            one.id,
            one.outcome.removeprefix("failed: "),
        )


def _is_left(one: Repeated) -> bool:
    return one.outcome == "waits" or one.outcome.startswith("failed")


# While a change is under way; and otherwise.
SOON_SECONDS, PAUSE_SECONDS = 5.0, 60.0


def end_generations(link: Link) -> float:
    """Close, finish and drop what can be; return how many seconds until the next."""
    with link.cursor() as cursor:
        if generations.close(cursor):
            logger.info("closed     former partitions of topics")
        topics = generations.closed(cursor)
    for topic_id in topics:
        with link.transaction() as cursor:
            read = generations.finish(cursor, topic_id)
            dropped = generations.drop(cursor, topic_id)
        if read:
            logger.info(
                "finished   topic_id=%d partitions=%s",
                topic_id,
                generations.spans(read),
            )
        for numbers in dropped:
            logger.info(
                "dropped    topic_id=%d partitions=%s",
                topic_id,
                generations.spans(numbers),
            )
    with link.cursor() as cursor:
        return SOON_SECONDS if generations.is_changing(cursor) else PAUSE_SECONDS


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
    with link.transaction() as cursor:
        # What is cancelled goes to the archive's day.
        ARCHIVE.make(cursor)
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
    with link.cursor() as cursor:
        left = workflows.unasked(cursor, workflows=WORKFLOWS_MAX, limit=JOBS_MAX)
    if not left:
        return False
    with link.transaction() as cursor:
        ARCHIVE.make(cursor)
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
