"""
Receive: read a group's log without a task, a batch of one partition at a time.

    the lease        one statement, committed: the partition is ours until it ends
    the caller       does what he does with the messages, in order
    commit()         moves the position, in his transaction or in none

What is not committed comes again, to whoever receives next.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import overload

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import (
    PositionLost,
    TopicError,
    check_whole,
    raised_as,
    shown,
)
from django_pgqueue.log import groups, positions, pull
from django_pgqueue.log.groups import GroupRow
from django_pgqueue.log.message import Message
from django_pgqueue.log.publish import HINT
from django_pgqueue.log.pull import Pulled
from django_pgqueue.log.read import Batch, as_batch
from django_pgqueue.log.start import Start
from django_pgqueue.options.durations import Duration, as_timedelta
from django_pgqueue.options.retry import Retry
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.tasks import database
from django_pgqueue.tasks.database import has_transaction, in_thread, twin
from django_pgqueue.tasks.payload import decode_value
from django_pgqueue.tasks.raised import RetryLater
from django_pgqueue.tasks.waiting import await_until, wait_until
from django_pgqueue.topics import operate_groups
from django_pgqueue.topics.consume import GROUP_LEASE_MAX, GROUP_LEASE_MIN
from django_pgqueue.topics.run_batch import Policy, decide
from django_pgqueue.topics.write_after import write_after

# What follows a message that has failed each attempt.
ON_ERROR = ("retry", "halt")

WAIT_SECONDS_MAX = 3_600.0


@dataclass(frozen=True, slots=True)
class Pulling:
    """What a group without a task says about messages that fail: a Policy."""

    on_error: str
    retry: Retry
    ack_policy: str = "on_success"


class NotDone(Exception):
    """What a caller has given back stands for, where he has named no error."""


class Received(Sequence[Message]):
    """
    Messages of one partition, in order, that are ours until the lease ends.

    Empty where there was nothing to read; then there is nothing to commit, either.
    """

    def __init__(
        self, group: GroupRow, pulled: Pulled | None = None, batch: Batch | None = None
    ) -> None:
        """Keep what receive() has read."""
        self._group = group
        self._pulled = pulled
        self._messages = () if batch is None else tuple(batch.messages)
        # Up to which id it is done.
        self._done = 0
        self.group = str(group)
        self.partition = None if pulled is None else pulled.partition

    def commit(self, up_to: int | Message | None = None) -> None:
        """
        Move the group's position: everything up to a message is done.

        Inside transaction.atomic() of the jobs' database, what else is written there
        happens exactly once. The last message gives the partition back; an earlier one
        keeps it, so that those after it can be committed until the lease ends.

        Args:
            up_to: A message of these, or its id; None: all.

        Raises:
            PositionLost: The lease is over, or somebody sought: nothing has moved, and
                others get these messages. In a transaction, let it roll back.
            TopicError: *up_to* is none of these.
        """
        if not self._messages:
            return
        last = self._messages[-1].id
        to = last if up_to is None else self._id(up_to)
        pulled = self._held()
        with database.cursor() as cursor:
            if not pull.commit(cursor, pulled.receipt, to):
                raise self._lost()
            if to == last != pulled.last:
                # What comes next cannot be read; that is decided by who gets it.
                positions.free(cursor, pull.claimed_by(pulled))
        self._done = to

    def extend(self, lease: Duration | None = None) -> None:
        """
        Let the lease last longer, from now on.

        Args:
            lease: 1 s to 1 day; None: the group's.

        Raises:
            PositionLost: It is over.
            TopicError: No lease can be so long.
        """
        if not self._messages:
            return
        seconds = self._group.lease_seconds
        said = timedelta(seconds=seconds) if lease is None else as_lease(lease)
        with database.cursor() as cursor:
            if not pull.extend(cursor, pull.claimed_by(self._held()), said):
                raise self._lost()

    def release(self) -> bool:
        """
        Give the partition back as it is: what is not committed comes at once.

        Returns:
            False: it was somebody else's already.
        """
        if self._pulled is None:
            return False
        with database.cursor() as cursor:
            return positions.free(cursor, pull.claimed_by(self._pulled))

    def nack(
        self, delay: Duration | None = None, *, error: BaseException | None = None
    ) -> None:
        """
        Give the partition back: the first message that is not committed has failed.

        Nobody reads it before the delay is over. What was read together is tried once
        more, and then message by message; after the attempts that the group allows, it
        halts the partition where on_error is "halt".

        Args:
            delay: Until the next attempt; None: by the group's back-off.
            error: Why; lag() tells it.

        Raises:
            PositionLost: The lease is over.
            TopicError: *delay* is no duration.
        """
        left = [each for each in self._messages if each.id > self._done]
        if not left:
            return
        if delay is not None:
            try:
                error = RetryLater(delay) if error is None else error
                delay = as_timedelta(delay, name="delay")
            except ValueError as problem:
                raise TopicError(f"nack(): {problem}") from None
        policy = policy_of(self._group)
        if delay is not None:
            policy = Pulling(policy.on_error, _constant(policy.retry, delay))
        why = NotDone("given back by who received it") if error is None else error
        if not _failed(self._held(), left, why, policy):
            raise self._lost()

    acommit = twin(commit)

    aextend = twin(extend)

    arelease = twin(release)

    anack = twin(nack)

    @overload
    def __getitem__(self, place: int) -> Message: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Message]: ...

    def __getitem__(self, place: int | slice) -> Message | Sequence[Message]:
        return self._messages[place]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        return f"<{len(self)} messages of {self.group}, partition {self.partition}>"

    def _held(self) -> Pulled:
        assert self._pulled is not None
        return self._pulled

    def _id(self, up_to: int | Message) -> int:
        found = up_to.id if isinstance(up_to, Message) else up_to
        ids = (self._messages[0].id, self._messages[-1].id)
        if (
            isinstance(found, bool)
            or not isinstance(found, int)
            or not ids[0] <= found <= ids[1]
        ):
            raise TopicError(
                f"commit({shown(found)}): write a message of these, or its id: from "
                f"{ids[0]:,} to {ids[1]:,}."
            )
        return found

    def _lost(self) -> PositionLost:
        return PositionLost(self.group, self._held().partition)


def create(
    topic: str,
    name: str,
    *,
    start: str | datetime | timedelta,
    lease: Duration,
    on_error: str,
    max_attempts: int,
) -> bool:
    """Make a group without a task, as Group.create(); return whether it is new."""
    if on_error not in ON_ERROR:
        raise TopicError(
            f"on_error={shown(on_error)}: it must be 'retry' or 'halt'; messages of a "
            f"group without a task cannot be dead letters."
        )
    with raised_as(TopicError):
        attempts = Retry(max_attempts=max_attempts).max_attempts
    begins = Start.parse(start)
    declaration = groups.Declaration(
        topic=topic,
        name=name,
        task="",
        lease_seconds=as_lease(lease).total_seconds(),
        on_error=on_error,
        max_attempts=attempts,
        start=begins.text,
        ago=begins.ago,
    )
    with operate_groups.log_transaction() as (connection, cursor):
        made = groups.declare(cursor, declaration)
        wake_after_commit(connection, HINT + topic)
    return made.is_new


def as_lease(value: Duration) -> timedelta:
    """Return for how long a partition is leased; raise TopicError."""
    with raised_as(TopicError):
        lease = as_timedelta(value, name="lease")
    if not GROUP_LEASE_MIN <= lease <= GROUP_LEASE_MAX:
        raise TopicError(f"lease={shown(value)}: it must be from 1 second to 1 day.")
    return lease


def policy_of(group: GroupRow) -> Pulling:
    """Return what a group says about messages that fail."""
    return Pulling(group.on_error, Retry(max_attempts=group.max_attempts))


def check(limit: int, wait: Duration | None) -> float:
    """
    Return how many seconds to wait at most.

    Raises:
        TopicError: A value is out of its range, or a transaction is open.
    """
    check_whole("receive({})", limit, pull.MESSAGES_MAX, TopicError)
    with raised_as(TopicError, "receive(): "):
        seconds = 0.0 if wait is None else as_timedelta(wait, name="wait")
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if seconds > WAIT_SECONDS_MAX:
        raise TopicError(
            f"receive(wait={shown(wait)}): it must be at most an hour; call it again "
            f"where nothing came."
        )
    return seconds


def refuse_transaction() -> None:
    """Raise TopicError where the application has a transaction open."""
    from django.db import connections

    if has_transaction(connections[get_settings().database]):
        raise TopicError(
            "receive() in a transaction: the lease would be there when that commits, "
            "and messages that it waits for would not come. Receive before it, and "
            "call commit() in it."
        )


def receive(row: Callable[[], GroupRow], limit: int, seconds: float) -> Received:
    """
    Return the next messages of a group; none, if none come in time.

    Args:
        row: Returns the group's row.
        limit: The most messages.
        seconds: How long to wait for the first.
    """
    refuse_transaction()
    group = row()
    found = Received(group)

    def has_some() -> bool:
        nonlocal found
        found = look(group, limit)
        return bool(found)

    wait_until([f"{HINT}{group.topic}"], seconds, has_some)
    return found


async def areceive(row: Callable[[], GroupRow], limit: int, seconds: float) -> Received:
    """As receive(), from async code; a wait keeps no thread."""
    await in_thread(refuse_transaction)
    group = await in_thread(row)
    found = Received(group)

    def has_some() -> bool:
        nonlocal found
        found = look(group, limit)
        return bool(found)

    await await_until([f"{HINT}{group.topic}"], seconds, has_some)
    return found


def look(group: GroupRow, limit: int) -> Received:
    """Return the next messages of a group; none, if there are none now."""
    while True:
        with database.cursor() as cursor:
            pulled = pull.pull(cursor, str(group), limit)
        if pulled is None:
            return Received(group)
        batch = as_batch(
            pulled.rows,
            group.topic,
            pulled.partition,
            pulled.last,
            False,
            decode_value,
        )
        if batch.error is None:
            return Received(group, pulled, batch)
        _failed(pulled, batch.messages, batch.error, policy_of(group))


def _failed(
    pulled: Pulled, messages: list[Message], error: BaseException, policy: Policy
) -> bool:
    """Write what follows messages that failed; False: they are not ours any more."""
    claimed = pull.claimed_by(pulled)
    with database.cursor() as cursor:
        known = pull.failures(cursor, claimed)
        if known is None:
            return False
        failures, at = known
        claimed = claimed._replace(failures=failures)
        after = decide(
            policy,
            messages=len(messages),
            failures=failures,
            error=error,
            random=random.random,
        )
        batch = Batch(messages, messages[-1].id, False)
        return write_after(cursor, claimed, batch, after, error, at=at).is_ours


def _constant(retry: Retry, delay: timedelta) -> Retry:
    return Retry(
        max_attempts=retry.max_attempts,
        backoff="constant",
        base=delay,
        cap=delay,
        jitter="none",
    )
