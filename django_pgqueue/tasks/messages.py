"""
Messages: a published message as the argument of a job.

A job of a subscription refers to its message, by id and time: the log has the payload
once, whoever gets it. It is fetched when the job starts, or for many jobs at once when
a worker claims them. Retention writes messages that it is about to remove into the
arguments of the jobs that still refer to them, as a whole.

    {"__pgqueue__": "message", "value": [42, "2026-11-22T11:00:00.123456+00:00"]}
    {"__pgqueue__": "message", "value": {"id": 42, "topic": "orders", …}}
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django_pgqueue.exceptions import UndecodablePayload
from django_pgqueue.log.message import Message, fetch
from django_pgqueue.tasks.raised import Reject

# In the whole form: the log has it, so that whoever passes it on refers to it.
IS_STORED = "is_stored"

WRONG = (AttributeError, KeyError, TypeError, ValueError)


class WholeMessage(Message):
    """A message that no log has any more: passed on, it is written as a whole."""

    __slots__ = ()


def write(message: Message) -> list[Any] | dict[str, Any]:
    """Return what stands for a message: a reference to it, if the log has it."""
    if message.published_at is not None and not isinstance(message, WholeMessage):
        return [message.id, _as_stored(message.published_at)]
    moment = message.published_at
    return {
        "id": message.id,
        "topic": message.topic,
        "name": message.name,
        "key": message.key,
        "payload": message.payload,
        "headers": dict(message.headers),
        "published_at": None if moment is None else moment.isoformat(),
        "partition": message.partition,
    }


def _as_stored(moment: datetime) -> str:
    """Return a time as PostgreSQL writes it in JSON: 0.5 s has one digit."""
    text = moment.astimezone(UTC).isoformat()
    whole, dot, rest = text.partition(".")
    digits, plus, offset = rest.partition("+")
    return whole + dot + digits.rstrip("0") + plus + offset


def read(value: Any, decode: Callable[[str], Any]) -> Message:
    """
    Return the message that *value* stands for; a reference is fetched.

    Args:
        value: What write() returned.
        decode: Makes values of the JSON text of a fetched one.

    Raises:
        Reject: Retention has removed it.
        UndecodablePayload: It is none of the two forms.
    """
    try:
        if isinstance(value, list):
            message_id, published_at = value
            return _fetched(int(message_id), str(published_at), decode)
        kind = Message if value.get(IS_STORED) else WholeMessage
        return _made(kind, value)
    except WRONG as error:
        if isinstance(error, UndecodablePayload):
            raise
        raise UndecodablePayload(f"stored message cannot be read: {error}") from error


def _fetched(
    message_id: int, published_at: str, decode: Callable[[str], Any]
) -> Message:
    from django.db import connections

    from django_pgqueue.conf import get_settings

    # Not as text alone: what is no time must not reach the database.
    moment = datetime.fromisoformat(published_at)
    with connections[get_settings().database].cursor() as cursor:
        text = fetch(cursor, message_id, moment)
    if text is None:
        raise Reject(
            f"message {message_id} of {published_at} is gone: the retention of its "
            f"topic has removed it, or somebody has erased it. Keep messages for "
            f"longer with topic(…, retain=…)."
        )
    return _made(Message, decode(text))


def _made(kind: type[Message], stored: Any) -> Message:
    moment = stored["published_at"]
    if moment is not None:
        moment = datetime.fromisoformat(moment).astimezone(UTC)
    return kind(
        id=stored["id"],
        topic=stored["topic"],
        name=stored["name"],
        payload=stored["payload"],
        key=stored["key"],
        headers=stored["headers"],
        published_at=moment,
        partition=stored["partition"],
    )
