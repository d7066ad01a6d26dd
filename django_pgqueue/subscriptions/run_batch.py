"""
Run a batch: call a group's handler, and move the position with it or after it.

    atomic        BEGIN; the handler; the fenced position; COMMIT
    on_success    the handler, then the fenced position
    first         the fenced position, then the handler
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from asgiref.sync import async_to_sync

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import LeaseLost
from django_pgqueue.subscriptions.consume import Consumer
from django_pgqueue.tasks.atomic import in_transaction
from django_pgqueue.tasks.context import Inline
from django_pgqueue.tasks.outcome import Retried, Succeeded
from django_pgqueue.tasks.perform import Guard, Performed, unguarded
from django_pgqueue.topics.message import Message
from django_pgqueue.topics.positions import Claimed, advance, limit_transaction


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


def run_batch(
    consumer: Consumer,
    claimed: Claimed,
    messages: list[Message],
    to: int,
    *,
    settings: Settings,
    moves: Callable[[bool], bool],
    lease_seconds: Callable[[], float] | None,
    guard: Guard = unguarded,
) -> Ended:
    """
    Call the handler with a batch. Catches everything, SystemExit too.

    Args:
        consumer: Whose handler.
        claimed: The partition, which is ours.
        messages: At least one.
        to: Where the position is then.
        settings: For the jobs' database.
        moves: Moves the position in a transaction of its own, and keeps the lease if
            it is told so; False: it is not ours. Where the group is atomic, it is not
            called.
        lease_seconds: Returns what is left of the lease; None: it does not end.
        guard: Calls the handler; TaskTimeout is raised in there.
    """
    call: Callable[[], Any] = functools.partial(
        consumer.task.run, NO_CONTEXT, [messages], NO_KEYWORDS
    )
    if consumer.task.options.is_async:
        call = functools.partial(_run_async, call)
    if consumer.is_atomic:
        return _run_atomic(
            consumer, claimed, to, call, settings.database, lease_seconds, guard
        )
    is_first = consumer.ack_policy == "first"
    if is_first and not moves(True):
        return Ended(None, 0.0, is_ours=False, has_begun=False)
    started = time.monotonic()
    try:
        guard(call)
    except BaseException as error:
        return Ended(error, time.monotonic() - started, was_acked=is_first)
    ran_seconds = time.monotonic() - started
    is_ours = is_first or moves(False)
    return Ended(None, ran_seconds, is_ours=is_ours, was_acked=is_first)


# The function takes none.
NO_CONTEXT: Any = None
NO_KEYWORDS: Mapping[str, Any] = {}


class _Position(Inline):
    """Moves the position where a task's ack is written."""

    __slots__ = ("_claimed", "_to")

    def __init__(self, claimed: Claimed, to: int) -> None:
        super().__init__()
        self._claimed = claimed
        self._to = to

    def ack_within(self, cursor: Any, performed: Any) -> bool | None:
        """Move it in the handler's transaction."""
        if not advance(cursor, self._claimed, self._to):
            raise LeaseLost(self._claimed.id, self._claimed.fence)
        return True


def _run_atomic(
    consumer: Consumer,
    claimed: Claimed,
    to: int,
    call: Callable[[], Any],
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
        return call()

    performed = in_transaction(
        alias,
        guard,
        limited,
        _Position(claimed, to),
        returned=lambda value: Performed(Succeeded()),
        failed=lambda error: Performed(Succeeded(), error),
    )
    ran_seconds = time.monotonic() - started
    if performed.settled is False:
        return Ended(None, ran_seconds, is_ours=False)
    has_begun = not isinstance(performed.outcome, Retried)
    # What an on_commit hook has raised comes after the position has moved.
    was_acked = performed.settled is True
    return Ended(performed.error, ran_seconds, was_acked=was_acked, has_begun=has_begun)


def _run_async(call: Callable[[], Any]) -> Any:
    async def run() -> Any:
        return await call()

    return async_to_sync(run)()
