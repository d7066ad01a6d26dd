"""
After a batch: what follows a failure. Decided purely, written by the reader.

A batch that fails is tried once more. Then its messages are handed over one by one, so
that the one that fails is found, and the others are not kept waiting by it. That one
gets all the attempts that the group's retries say.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django_pgqueue.exceptions import TaskTimeout, UndecodablePayload
from django_pgqueue.subscriptions.consume import Consumer
from django_pgqueue.tasks.outcome import Cancel, Reject, RetryLater, Snooze

# How often a batch is tried before its messages are handed over one by one.
BATCH_ATTEMPTS = 2

AT_ONCE = timedelta(0)

# When a back-off function of the user's raises, it must not cost the message.
BACKOFF_FAILED = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Moved:
    """The position moves past the batch."""


@dataclass(frozen=True, slots=True)
class Again:
    """The partition is read again after the delay."""

    delay: timedelta
    # From here on message by message, up to the end of the batch.
    one_by_one: bool = False
    # Whether it was a failure of what comes next.
    counts: bool = True
    # Whether there is an error to be kept.
    is_failure: bool = True


@dataclass(frozen=True, slots=True)
class Skipped:
    """The message becomes a dead letter, and the position moves past it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Halted:
    """The partition waits until somebody resumes it."""


After = Moved | Again | Skipped | Halted


def decide(
    consumer: Consumer,
    *,
    messages: int,
    failures: int,
    error: BaseException,
    random: Callable[[], float] = random_module.random,
) -> After:
    """
    Say what follows a batch whose handler has raised.

    Args:
        consumer: Its policy.
        messages: How many the handler got.
        failures: Those before this one, since the position has last moved.
        error: What it raised.
        random: Draws the jitter, from 0 to 1.
    """
    if isinstance(error, Cancel):
        return Moved()
    if isinstance(error, Snooze):
        return Again(error.delay, counts=False, is_failure=False)
    if messages > 1:
        return _after_many(consumer, failures, error, random)
    if isinstance(error, Reject):
        return Skipped("rejected")
    attempt = failures + 1
    if consumer.on_error == "retry":
        return Again(_delay(consumer, attempt, error, random), one_by_one=True)
    is_last = (
        attempt >= consumer.retry.max_attempts
        or consumer.ack_policy == "reject_on_error"
        or isinstance(error, UndecodablePayload)
        or not (isinstance(error, RetryLater) or consumer.retry.handles(error))
    )
    if not is_last:
        return Again(_delay(consumer, attempt, error, random), one_by_one=True)
    if consumer.on_error == "halt":
        return Halted()
    return Skipped(_reason(consumer, error))


def _reason(consumer: Consumer, error: BaseException) -> str:
    if isinstance(error, UndecodablePayload):
        return "undecodable"
    if consumer.ack_policy == "reject_on_error":
        return "rejected"
    return "timeout" if isinstance(error, TaskTimeout) else "exhausted"


def decide_before(consumer: Consumer, *, messages: int, failures: int) -> After | None:
    """
    Say what is done instead of a call; None: the handler is called.

    What has taken its reader down each time would do so again: leases that lapsed count
    as failures, and nobody was there to decide what follows them. By "first", what took
    the reader down is behind the position: nobody has tried what comes next.
    """
    if consumer.ack_policy == "first":
        return None
    if messages > 1:
        if failures < BATCH_ATTEMPTS:
            return None
        return Again(AT_ONCE, one_by_one=True, counts=False, is_failure=False)
    if consumer.on_error == "retry" or failures < consumer.retry.max_attempts:
        return None
    return Halted() if consumer.on_error == "halt" else Skipped("lease_expired")


def _after_many(
    consumer: Consumer,
    failures: int,
    error: BaseException,
    random: Callable[[], float],
) -> Again:
    if isinstance(error, Reject):
        # Which of them it is has to be found.
        return Again(AT_ONCE, one_by_one=True, counts=False)
    delay = _delay(consumer, failures + 1, error, random)
    if failures + 1 < BATCH_ATTEMPTS:
        return Again(delay)
    return Again(delay, one_by_one=True, counts=False)


def _delay(
    consumer: Consumer,
    attempt: int,
    error: BaseException,
    random: Callable[[], float],
) -> timedelta:
    if isinstance(error, RetryLater):
        return error.delay
    try:
        return consumer.retry.delay(attempt, error, random=random)
    except Exception:
        return BACKOFF_FAILED
