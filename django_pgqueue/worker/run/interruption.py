"""Interruption: a worker stopped while a job ran, which is no failure of the job."""

from __future__ import annotations

import logging
from datetime import timedelta

from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.outcome import Performed, Retried

logger = logging.getLogger("django_pgqueue.worker")


class Interrupted(Exception):
    """The worker stopped, and its grace was over, while the job ran."""


def interrupted(
    job: Claimed,
    grace_seconds: float,
    ran_seconds: float | None = None,
    cause: BaseException | None = None,
) -> Performed:
    """Return the end of a job that is handed back: at once, with its attempt."""
    logger.warning(
        "interrupted job=%d task=%s: the grace of %g s is over; handed back",
        job.id,
        job.task,
        grace_seconds,
    )
    error = Interrupted(
        f"The worker stopped and its grace of {grace_seconds:g} s was over."
    )
    error.__cause__ = cause
    return Performed(Retried(timedelta(0), gives_attempt_back=True), error, ran_seconds)
