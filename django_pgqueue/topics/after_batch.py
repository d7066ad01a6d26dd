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
from typing import Protocol

from django_pgqueue.exceptions import TaskTimeout, UndecodablePayload
from django_pgqueue.options.retry import Retry
from django_pgqueue.tasks.raised import Cancel, Reject, RetryLater, Snooze

# How often a batch is tried before its messages are handed over one by one.
BATCH_ATTEMPTS = 2

# How many readers one message may take down before its function was called, where its
# position moves first; one of them had died of what came before it.
FIRST_ATTEMPTS = 3

AT_ONCE = timedelta(0)

# When a back-off function of the user's raises, it must not cost the message.
BACKOFF_FAILED = timedelta(minutes=1)


class Policy(Protocol):
    """What a group says about messages that fail: a Consumer, or its row."""

    @property
    def on_error(self) -> str:
        """What is done after the last attempt: "skip", "retry" or "halt"."""

    @property
    def retry(self) -> Retry:
        """How many attempts, and when."""

    @property
    def ack_policy(self) -> str:
        """When the position moves."""


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
    consumer: Policy,
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


def _reason(consumer: Policy, error: BaseException) -> str:
    if isinstance(error, UndecodablePayload):
        return "undecodable"
    if consumer.ack_policy == "reject_on_error":
        return "rejected"
    return "timeout" if isinstance(error, TaskTimeout) else "exhausted"


def decide_before(
    consumer: Policy, *, messages: int, failures: int, has_lapsed: bool = False
) -> After | None:
    """
    Say what is done instead of reading a batch; None: it is read, and handed over.

    What has taken its reader down each time would do so again, be it in the handler or
    by its size: leases that lapsed count as failures, and nobody was there to decide
    what follows them. So this is asked before any payload is read. By "first", what
    took the reader down once is behind the position: nobody has tried what comes next.

    Args:
        consumer: Its policy.
        messages: How many come next, one batch at most.
        failures: Of what comes next, since the position has last moved.
        has_lapsed: Whether the last of them was a lease that its reader did not give
            back.
    """
    is_first = consumer.ack_policy == "first"
    if messages > 1:
        if failures < BATCH_ATTEMPTS and (is_first or not has_lapsed):
            return None
        return Again(AT_ONCE, one_by_one=True, counts=False, is_failure=False)
    most = FIRST_ATTEMPTS if is_first else consumer.retry.max_attempts
    if consumer.on_error == "retry" or failures < most:
        return None
    return Halted() if consumer.on_error == "halt" else Skipped("lease_expired")


def _after_many(
    consumer: Policy,
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
    consumer: Policy,
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
