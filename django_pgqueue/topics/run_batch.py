"""
Run a batch: call a group's handler, and move the position with it or after it.

    atomic        BEGIN; the handler; the fenced position; COMMIT
    on_success    the handler, then the fenced position
    first         the fenced position, then the handler
    manual        the handler, and what it has acked: the caller moves the position
"""

from __future__ import annotations

import functools
import random as random_module
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from asgiref.sync import async_to_sync

from django_pgqueue import telemetry
from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import LeaseLost, TaskTimeout, UndecodablePayload
from django_pgqueue.log.message import Message
from django_pgqueue.log.positions import Claimed, limit_transaction
from django_pgqueue.options.retry import Retry
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.tasks.atomic import in_transaction
from django_pgqueue.tasks.context import JobControl
from django_pgqueue.tasks.outcome import Performed, Retried, Succeeded
from django_pgqueue.tasks.perform import Guard, unguarded
from django_pgqueue.tasks.raised import Cancel, Reject, RetryLater, Snooze
from django_pgqueue.topics.acked import Messages
from django_pgqueue.topics.consume import Consumer


@dataclass(frozen=True, slots=True)
class Ended:
    """How the call of a handler ended."""

    # None: it returned, and the position is moved where is_ours.
    error: BaseException | None
    ran_seconds: float
    # False: the partition is somebody else's by now, and nothing was written.
    is_ours: bool = True
    # Whether the position was moved before it raised.
    was_acked: bool = False
    # Whether the handler was called at all.
    has_begun: bool = True
    # Whether it was not, since the lease was over before: somebody else may have it.
    is_late: bool = False
    # How many messages it has acked by hand, in order; None: that is not its policy.
    # Then the position has not moved.
    acked: int | None = None


def run_batch(
    consumer: Consumer,
    claimed: Claimed,
    messages: list[Message],
    *,
    settings: Settings,
    moves: Callable[[bool], bool],
    moves_within: Callable[[Any], bool],
    lease_seconds: Callable[[], float] | None,
    guard: Guard = unguarded,
) -> Ended:
    """
    Call the handler with a batch. Catches everything, SystemExit too.

    Args:
        consumer: Whose handler.
        claimed: The partition, which is ours.
        messages: At least one.
        settings: For the jobs' database.
        moves: Moves the position in a transaction of its own, and keeps the lease if
            it is told so; False: it is not ours.
        moves_within: Where the group is atomic it is called instead, with a cursor of
            the handler's transaction.
        lease_seconds: Returns what is left of the lease, 0 or less: the handler is not
            called; None: it does not end.
        guard: Calls the handler; TaskTimeout is raised in there.
    """
    is_manual = consumer.ack_policy == "manual"
    given = Messages(messages) if is_manual else messages
    call: Callable[[], Any] = functools.partial(
        consumer.task.run, NO_CONTEXT, [given], NO_KEYWORDS
    )
    if consumer.task.options.is_async:
        call = functools.partial(_run_async, call)
    call = functools.partial(_with_fields, call, consumer, claimed.partition)
    if settings.trace:
        call = _in_span(call, consumer, claimed, messages)
    in_time = _InTime(call, lease_seconds)
    if in_time.is_over:
        return LATE
    if consumer.is_atomic:
        return _run_atomic(
            claimed, moves_within, in_time, settings.database, lease_seconds, guard
        )
    is_first = consumer.ack_policy == "first"
    if is_first and not moves(True):
        return Ended(None, 0.0, is_ours=False, has_begun=False)
    started = time.monotonic()
    try:
        guard(in_time)
    except BaseException as error:
        is_late = isinstance(error, TaskTimeout) and not in_time.has_begun
        if is_late and not is_first:
            return LATE
        seconds = time.monotonic() - started
        return Ended(error, seconds, was_acked=is_first, acked=_acked(given))
    ran_seconds = time.monotonic() - started
    if is_manual:
        return Ended(None, ran_seconds, acked=_acked(given))
    is_ours = is_first or moves(False)
    return Ended(None, ran_seconds, is_ours=is_ours, was_acked=is_first)


def _acked(messages: list[Message]) -> int | None:
    return messages.acked if isinstance(messages, Messages) else None


LATE = Ended(None, 0.0, is_ours=False, has_begun=False, is_late=True)


class _InTime:
    """
    Calls the handler, unless the lease is over by now.

    Asked at the last moment: a process may have been frozen since its claim, or have
    waited for a connection. Somebody else may have handed over what comes next, and
    what this handler did outside of the database would go back in time.
    """

    __slots__ = ("_call", "_lease_seconds", "has_begun")

    def __init__(
        self, call: Callable[[], Any], lease_seconds: Callable[[], float] | None
    ) -> None:
        self._call = call
        self._lease_seconds = lease_seconds
        self.has_begun = False

    @property
    def is_over(self) -> bool:
        return self._lease_seconds is not None and self._lease_seconds() <= 0

    def __call__(self) -> Any:
        if self.is_over:
            raise TaskTimeout(
                "Its lease was over before the function was called, so it was not."
            )
        self.has_begun = True
        return self._call()


# The function takes none.
NO_CONTEXT: Any = None
NO_KEYWORDS: Mapping[str, Any] = {}


class _Position(JobControl):
    """Moves the position where a task's ack is written."""

    __slots__ = ("_claimed", "_moves")

    def __init__(self, claimed: Claimed, moves: Callable[[Any], bool]) -> None:
        super().__init__()
        self._claimed = claimed
        self._moves = moves

    def ack_within(self, cursor: Cursor, performed: Any) -> bool | None:
        """Move it in the handler's transaction."""
        if not self._moves(cursor):
            raise LeaseLost(self._claimed.id, self._claimed.fence)
        return True


def _run_atomic(
    claimed: Claimed,
    moves_within: Callable[[Any], bool],
    in_time: _InTime,
    alias: str,
    lease_seconds: Callable[[], float] | None,
    guard: Guard,
) -> Ended:
    from django.db import connections

    started = time.monotonic()

    def limited() -> Any:
        if lease_seconds is not None:
            with connections[alias].cursor() as cursor:
                limit_transaction(cursor, lease_seconds())
        return in_time()

    performed = in_transaction(
        alias,
        guard,
        limited,
        _Position(claimed, moves_within),
        returned=lambda value: Performed(Succeeded()),
        failed=lambda error: Performed(Succeeded(), error),
    )
    ran_seconds = time.monotonic() - started
    if isinstance(performed.error, TaskTimeout) and not in_time.has_begun:
        return LATE
    if performed.settled is False:
        return Ended(None, ran_seconds, is_ours=False)
    has_begun = not isinstance(performed.outcome, Retried)
    # What an on_commit hook has raised comes after the position has moved.
    was_acked = performed.settled is True
    return Ended(performed.error, ran_seconds, was_acked=was_acked, has_begun=has_begun)


def _with_fields(call: Callable[[], Any], consumer: Consumer, partition: int) -> Any:
    """Call it; what it logs has the fields of its group."""
    token = telemetry.current.set((telemetry.fields_of_group, consumer, partition))
    try:
        return call()
    finally:
        telemetry.current.reset(token)


def _in_span(
    call: Callable[[], Any],
    consumer: Consumer,
    claimed: Claimed,
    messages: list[Message],
) -> Callable[[], Any]:
    """Return *call* with a span around it, linked to what has published."""
    from django_pgqueue.tasks import tracing

    attributes = {
        "messaging.batch.message_count": len(messages),
        "messaging.consumer.group.name": consumer.group,
        "messaging.destination.partition.id": str(claimed.partition),
        "pgqueue.task": consumer.task.name,
        "pgqueue.attempt": claimed.failures + 1,
    }

    def traced() -> Any:
        headers = (message.headers for message in messages)
        with tracing.reading(consumer.topic, attributes, headers):
            return call()

    return traced


def _run_async(call: Callable[[], Any]) -> Any:
    async def run() -> Any:
        return await call()

    return async_to_sync(run)()


# After batch --------------------------------------------------------------------------
# After a batch: what follows a failure. Decided purely, written by the reader.
#
# A batch that fails is tried once more. Then its messages are handed over one by one,
# so that the one that fails is found, and the others are not kept waiting by it. That
# one gets all the attempts that the group's retries say.


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
