"""
Repeats: makes the calls again that met a late job, once they have committed.

A chore of the leader. Two of them do no harm: a call is locked while it is made again.
"""

from __future__ import annotations

import logging

from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.wake import wake
from django_pgqueue.queues.unique import REPEAT_CALLS_MAX, Repeated, repeat_calls

logger = logging.getLogger("django_pgqueue.worker")

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
