"""
Acked: what a function of @consume(ack_policy="manual") gets, and says what is done.

    def count(messages: Messages) -> None:
        for message in messages:
            ...
            messages.ack(message)

The position moves to the last message that was acked in order, from the first on. What
is not comes again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from asgiref.sync import iscoroutinefunction

from django_pgqueue.exceptions import TopicError, shown
from django_pgqueue.log.message import Message
from django_pgqueue.log.read import Batch

NOTHING = (
    "returned without an ack of the first message: with ack_policy='manual' it must "
    "call messages.ack(message)."
)


class NotAcked(Exception):
    """What a function stands for that has acked nothing in order."""


class Messages(list[Message]):
    """A batch, whose messages are acked one by one or all at once."""

    __slots__ = ("_acked",)

    def __init__(self, messages: Iterable[Message]) -> None:
        super().__init__(messages)
        self._acked: set[int] = set()

    def ack(self, message: Message | int | None = None) -> None:
        """
        Say that a message is done: the position moves past it once the function ends.

        Args:
            message: Of these, or its id; None: all of them.

        Raises:
            TopicError: It is none of these.
        """
        ids = [each.id for each in self]
        if message is None:
            self._acked.update(ids)
            return
        said = message.id if isinstance(message, Message) else message
        if said not in ids:
            raise TopicError(
                f"ack({shown(said)}): it is no message of this batch, whose ids are "
                f"from {ids[0]:,} to {ids[-1]:,}."
            )
        self._acked.add(said)

    @property
    def acked(self) -> int:
        """How many are acked, from the first on without a gap."""
        count = 0
        for each in self:
            if each.id not in self._acked:
                break
            count += 1
        return count


def split(batch: Batch, acked: int) -> tuple[Batch, Batch]:
    """Return the part of a batch that is done, and the rest; each may be empty."""
    done, rest = batch.messages[:acked], batch.messages[acked:]
    if not rest:
        return batch, batch._replace(messages=[])
    to = done[-1].id if done else batch.to
    return (
        batch._replace(messages=done, to=to, has_more=True),
        batch._replace(messages=rest),
    )


def acking(function: Callable[..., Any]) -> Callable[..., Any]:
    """
    Return *function* as it is called by a job, too: with a list of one, as redriven.

    There nobody looks at what was acked, so that what was not is raised.
    """
    if iscoroutinefunction(function):

        @functools.wraps(function)
        async def acks_async(messages: Any, **kwargs: Any) -> Any:
            given = _given(messages)
            value = await function(given, **kwargs)
            return _checked(given, messages, value)

        return acks_async

    @functools.wraps(function)
    def acks(messages: Any, **kwargs: Any) -> Any:
        given = _given(messages)
        return _checked(given, messages, function(given, **kwargs))

    return acks


def _given(messages: Any) -> Messages:
    return messages if isinstance(messages, Messages) else Messages(messages)


def _checked(given: Messages, messages: Any, value: Any) -> Any:
    if given is not messages and given.acked < len(given):
        raise NotAcked(NOTHING)
    return value
