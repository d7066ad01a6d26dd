"""
Outcome: what becomes of a job after an attempt. Decided purely, written by others.

The ninth hop of a job's life. A task returns, or raises one of the words of raised.py,
or fails with anything else; ``decide`` says what follows and changes nothing.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.options.retry import Retry
from django_pgqueue.tasks.raised import AskedAgain, Cancel, Reject, RetryLater, Snooze

if TYPE_CHECKING:
    from django_pgqueue.queues.claim import Claimed
    from django_pgqueue.tasks.options import ResolvedOptions
    from django_pgqueue.tasks.output import Line

ON_SUCCESS = "on_success"
REJECT_ON_ERROR = "reject_on_error"

# The lane_policy of a group in which nobody waits for one that has failed.
DEAD_LETTER = "dead-letter"


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The task returned."""


@dataclass(frozen=True, slots=True)
class Retried:
    """The job becomes visible again after the delay."""

    delay: timedelta
    gives_attempt_back: bool = False
    is_failure: bool = True  # False: a snooze leaves no error behind.
    unknown_task: bool = False


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The job moves to the dead letters."""

    reason: str


@dataclass(frozen=True, slots=True)
class Expired:
    """The job's time has passed; it moves to the archive and does not run (again)."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The job moves to the archive as cancelled."""


Outcome = Succeeded | Retried | GaveUp | Expired | Cancelled


@dataclass(slots=True)
class Performed:
    """How an attempt ended."""

    outcome: Outcome
    error: BaseException | None = None
    ran_seconds: float | None = None  # None: it never started.
    result: str | None = None  # JSON text.
    note: str | None = None  # An entry beside the outcome, as JSON.
    # None: the outcome is still to be written. True: it is, by the task's own word or
    # transaction; an error or a result came after it. False: it cannot be, since the
    # lease was lost.
    settled: bool | None = None
    progress: str | None = None  # JSON text of the last report, if it is not written.
    # It succeeded, and its task keeps no archive.
    leaves_no_trace: bool = False
    log: list[Line] | None = None  # What the task has written down.
    # What it has emitted, and is not written: numbers and JSON texts.
    emitted: list[tuple[int, str]] | None = None


@dataclass(slots=True)
class Shared(Performed):
    """How a run of several jobs ended, for one of them."""

    # Message and traceback of the error: once for all of them.
    words: tuple[str, str] | None = None


def decide(
    policy: Retry,
    *,
    attempt: int,
    max_attempts: int,
    error: BaseException | None,
    random: Callable[[], float] = random_module.random,
    age: timedelta = timedelta(0),
    ack_policy: str = ON_SUCCESS,
    is_cancelled: bool = False,
) -> Outcome:
    """
    Say what follows an attempt.

    Args:
        policy: How the task is retried.
        attempt: The attempt that ended, 1 being the first.
        max_attempts: Those that this job has; its row wins over the policy.
        error: What the task raised; None when it returned.
        random: Draws the jitter, from 0 to 1.
        age: Of the job, from its enqueue until now.
        ack_policy: "reject_on_error": a failure is the last one.
        is_cancelled: Somebody has asked the job to stop. One that returned has done
            its work nevertheless; any other end is what was asked for.
    """
    if error is None:
        return Succeeded()
    if is_cancelled or isinstance(error, Cancel):
        return Cancelled()
    if isinstance(error, Snooze):
        return Retried(error.delay, gives_attempt_back=True, is_failure=False)
    if isinstance(error, Reject) or ack_policy == REJECT_ON_ERROR:
        return GaveUp("rejected")
    is_asked = isinstance(error, (RetryLater, AskedAgain))
    if attempt < max_attempts and (is_asked or policy.handles(error)):
        delay = (
            error.delay
            if isinstance(error, RetryLater)
            else policy.delay(attempt, error, random=random)
        )
        if not policy.is_too_old(age + delay):
            return Retried(delay)
    return GaveUp("timeout" if isinstance(error, TaskTimeout) else "exhausted")


def has_failed(performed: Performed) -> bool | None:
    """
    Say whether an attempt failed, as a circuit breaker counts; None: it does not count.

    What never began, was put off, given up by its own word, cancelled or cut off by a
    stop says nothing of whether the next one will fail.
    """
    outcome, error = performed.outcome, performed.error
    if type(outcome) is Succeeded:
        return False
    if error is None or isinstance(error, Reject):
        return None
    if performed.ran_seconds is None and not isinstance(error, TaskTimeout):
        return None
    if isinstance(outcome, Retried):
        return True if outcome.is_failure and not outcome.gives_attempt_back else None
    return True if isinstance(outcome, GaveUp) else None


def outcome_after(
    job: Claimed,
    options: ResolvedOptions,
    error: BaseException | None,
    is_cancelled: bool = False,
    ran_seconds: float = 0.0,
    draw: Callable[[], float] = random_module.random,
) -> Outcome:
    """Say what follows an attempt, by the policy of its task; *draw*: of the jitter."""
    age = job.claimed_at - job.enqueued_at + timedelta(seconds=ran_seconds)
    try:
        return decide(
            options.retry,
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            error=error,
            age=age,
            ack_policy=(
                REJECT_ON_ERROR
                if job.lane_policy == DEAD_LETTER
                else options.ack_policy
            ),
            is_cancelled=is_cancelled,
            random=draw,
        )
    except Exception:
        # A back-off function of the user's that raises must not cost the job.
        return Retried(timedelta(minutes=1))
