"""
Payload: arguments to JSON and back.

The second hop of a job's life. Whatever could fail in the database fails here first,
with the path of the value, so that the caller's transaction stays usable. Reading is
the mirror image and happens inside the job's own try: a row that cannot be read ends
as one dead letter and its neighbours run.

Besides JSON's own types these travel, as ``{"__pgqueue__": type, "value": …}``:
datetime, date, time, timedelta, Decimal, UUID, bytes, floats from 1e16 on, and saved
model instances, of which model, primary key and database are stored and the row is
fetched at run time; and messages (see below). A datetime keeps its offset, not the
name of its zone.
Tuples arrive as lists; members of an Enum with a str or int value as that value.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django_pgqueue.exceptions import (
    InvalidArgument,
    PayloadTooLarge,
    UndecodablePayload,
    shown,
)
from django_pgqueue.log.message import Message, fetch
from django_pgqueue.tasks import walk
from django_pgqueue.tasks.raised import Reject
from django_pgqueue.tasks.walk import FOLDED, Unfit, refused, text_of, walked

NAME_LENGTH_MAX = 255

DEPTH_MAX, ENCODER, TAG = walk.DEPTH_MAX, walk.ENCODER, walk.TAG


def encode(
    task: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, payload_bytes_max: int
) -> tuple[str, str]:
    """
    Return args and kwargs as JSON text.

    Args:
        task: The task's name, for errors.
        args: Positional arguments.
        kwargs: Keyword arguments.
        payload_bytes_max: The most bytes that both may take, as UTF-8.

    Raises:
        InvalidArgument: A value cannot travel; the message says which and why.
        PayloadTooLarge: Together they are larger than payload_bytes_max.
    """
    texts = [
        encode_at(task, "args", list(args)) if args else "[]",
        encode_at(task, "kwargs", dict(kwargs)) if kwargs else "{}",
    ]
    payload_bytes = _bytes(texts[0]) + _bytes(texts[1])
    if payload_bytes > payload_bytes_max:
        raise PayloadTooLarge(
            task=task, payload_bytes=payload_bytes, payload_bytes_max=payload_bytes_max
        )
    return texts[0], texts[1]


def encode_plain(
    items: Sequence[Any],
    *,
    payload_bytes_max: int,
    unsure: Sequence[Any] | None = None,
) -> str | None:
    """
    Return the arguments of several jobs as JSON texts with commas between.

    Args:
        items: For each job either its args or its kwargs; the other is empty.
        payload_bytes_max: As in encode().
        unsure: As in plain_items().

    Returns:
        None: Some value needs a closer look, or one of the items may be too large; so
        each has to be encoded by itself.
    """
    text = walk.plain_items(items, unsure=unsure)
    # Those of the empty other are two bytes.
    return text if text and _bytes(text) + 2 <= payload_bytes_max else None


def encode_at(task: str, path: str, value: Any) -> str:
    """
    Return one value as JSON text.

    Args:
        task: The task's name, for errors.
        path: Where the value stands, for errors.
        value: Any that can travel.

    Raises:
        InvalidArgument: It cannot travel; its path tells where in it the reason is.
    """
    try:
        return _text(value)
    except Unfit as unfit:
        raise InvalidArgument(
            task=task, path=path + unfit.path, problem=unfit.problem
        ) from unfit.__cause__


def check_kinds(task: str, args: object, kwargs: object) -> None:
    """Raise InvalidArgument unless these are a list or a tuple, and a dict."""
    for path, value, kinds, name in (
        ("args", args, (list, tuple), "a list or a tuple"),
        ("kwargs", kwargs, (Mapping,), "a dict"),
    ):
        if not isinstance(value, kinds):
            problem = f"is a {type(value).__qualname__}; it must be {name}"
            raise InvalidArgument(task=task, path=path, problem=problem)


def check_text(task: str, path: str, value: object) -> None:
    """Raise InvalidArgument unless *value* is a text that the database can store."""
    if not isinstance(value, str) or not 1 <= len(value) <= NAME_LENGTH_MAX:
        problem = f"is {shown(value)}; it must be a text of 1 to {NAME_LENGTH_MAX}"
        raise InvalidArgument(task=task, path=path, problem=problem)
    encode_at(task, path, value)


def encode_value(value: Any) -> str:
    """
    Return one value (a result, headers) as JSON text.

    Raises:
        ValueError: It cannot travel; the message says where and why.
    """
    try:
        return _text(value)
    except Unfit as unfit:
        raise ValueError(f"value{unfit.path} {unfit.problem}") from unfit.__cause__


def encode_result(value: Any, bytes_max: int) -> str:
    """
    Return what a task or a step has returned as JSON text.

    Raises:
        ValueError: It cannot travel, or takes more bytes than PGQUEUE says.
    """
    text = encode_value(value)
    size = len(text.encode())
    if size > bytes_max:
        raise ValueError(
            f"it takes {size:,} bytes as JSON; the limit is {bytes_max:,} "
            f"(PGQUEUE['RESULT_BYTES_MAX'])"
        )
    return text


def decode(
    args: str, kwargs: str, *, fetches: bool = True
) -> tuple[list[Any], dict[str, Any]]:
    """
    Turn stored JSON text into arguments; model instances and messages are fetched.

    Args:
        args: A JSON array.
        kwargs: A JSON object.
        fetches: False: those stay as they are stored.

    Raises:
        UndecodablePayload: It is no list and no object, too deep, or holds what
            Python cannot read.
        Reject: A model instance or a message in it no longer exists.
    """
    values = [] if args == "[]" else decode_value(args, fetches=fetches)
    named = {} if kwargs == "{}" else decode_value(kwargs, fetches=fetches)
    if not isinstance(values, list) or not isinstance(named, dict):
        raise UndecodablePayload(
            f"args must be a JSON array and kwargs a JSON object, not "
            f"{type(values).__name__} and {type(named).__name__}"
        )
    return values, named


def decode_value(text: str, *, fetches: bool = True) -> Any:
    """
    Turn stored JSON text into a value; as decode().

    Raises:
        UndecodablePayload: Python cannot read it.
        Reject: A model instance or a message in it no longer exists.
    """
    try:
        # The hook is called for every object, so it is used only where one is tagged.
        untag = _untag if fetches else _untag_here
        return json.loads(text, object_hook=untag if TAG in text else None)
    except (ValueError, RecursionError) as error:
        raise UndecodablePayload(f"stored JSON cannot be read: {error}") from error


def decode_result(text: str | None, what: str) -> Any:
    """
    Turn what a task has returned or emitted into a value; None stays None.

    Args:
        text: As it is stored.
        what: What to call it in the error.

    Raises:
        UndecodablePayload: A model instance in it is gone, or it cannot be read.
    """
    try:
        return None if text is None else decode_value(text)
    except Reject as gone:
        # Not as it is: inside another task it would reject that task's job.
        raise UndecodablePayload(f"{what} cannot be read: {gone}") from None


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _text(value: Any) -> str:
    return text_of(value, _ours)


def _ours(value: Any, depth: int) -> Any:
    """Return what stands for a message, or for an instance of a model."""
    from django.db.models import Model, QuerySet
    from django.utils.functional import Promise

    if issubclass(type(value), Message):
        return {
            TAG: "message",
            "value": walked(write_message(value), depth + 1, _ours),
        }
    if isinstance(value, Model):
        if value.pk is None or value._state.adding:
            raise Unfit(f"is an unsaved {value._meta.label}: save it first")
        return {
            TAG: "model",
            "value": value._meta.label_lower,
            "pk": walked(value.pk, depth + 1, _ours),
            "db": value._state.db,
        }
    if isinstance(value, QuerySet):
        raise Unfit(
            "is a QuerySet, which would be evaluated later with other rows: pass "
            "list(queryset.values_list('pk', flat=True))"
        )
    if isinstance(value, Promise):
        raise Unfit("is a lazy text, whose language is not decided yet: pass str(…)")
    return refused(value, depth)


def _read_timedelta(value: Sequence[int]) -> timedelta:
    days, seconds, microseconds = value
    return timedelta(days=days, seconds=seconds, microseconds=microseconds)


READERS: dict[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "float": float,
    "timedelta": _read_timedelta,
    "decimal": Decimal,
    "uuid": UUID,
    "bytes": base64.b64decode,
}

# What stands in the database, and only by reference in the arguments.
FETCHED = ("model", "message")

# UUID(5) is an AttributeError, Decimal("x") an ArithmeticError.
READING_FAILS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def _untag(value: dict[str, Any]) -> Any:
    tag = value.get(TAG)
    if tag is None:
        return value
    if tag == "model":
        return _fetch(value)
    if tag == "message":
        return read_message(value.get("value"))
    if not isinstance(tag, str) or tag not in READERS:
        raise UndecodablePayload(f"unknown type {shown(tag)} in a stored argument")
    try:
        read = READERS[tag](value["value"])
        if tag in FOLDED and "fold" in value:
            read = read.replace(fold=value["fold"])
        return read
    except READING_FAILS as error:
        raise UndecodablePayload(f"stored {tag} cannot be read: {error}") from error


def _untag_here(value: dict[str, Any]) -> Any:
    return value if value.get(TAG) in FETCHED else _untag(value)


def _fetch(value: dict[str, Any]) -> Any:
    from django.apps import apps
    from django.utils.connection import ConnectionDoesNotExist

    try:
        model = apps.get_model(value["value"])
        manager = model._base_manager.using(value["db"])
        row = manager.filter(pk=value["pk"]).first()
    except (*READING_FAILS, ConnectionDoesNotExist) as error:
        raise UndecodablePayload(f"stored model cannot be read: {error}") from error
    if row is None:
        raise Reject(f"{value['value']} with primary key {value['pk']!r} is gone")
    return row


# Messages -----------------------------------------------------------------------------
#
# The job of a subscription refers to its message by id and time, so that the log keeps
# the payload once for all subscribers. The message is fetched when the job starts, or
# for many jobs at once when a worker claims them. Retention writes each message that it
# is about to remove into the arguments of the jobs that still refer to it.
#
#   {"__pgqueue__": "message", "value": [42, "2026-11-22T11:00:00.123456+00:00"]}
#   {"__pgqueue__": "message", "value": {"id": 42, "topic": "orders", …}}


# In the whole form: the log has it, so that whoever passes it on refers to it.
IS_STORED = "is_stored"

WRONG = (AttributeError, KeyError, TypeError, ValueError)


class WholeMessage(Message):
    """A message that no log has any more: passed on, it is written as a whole."""

    __slots__ = ()


def write_message(message: Message) -> list[Any] | dict[str, Any]:
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


def read_message(value: Any) -> Message:
    """
    Return the message that *value* stands for; a reference is fetched.

    Args:
        value: What write_message() returned.

    Raises:
        Reject: Retention has removed it.
        UndecodablePayload: It is none of the two forms.
    """
    try:
        if isinstance(value, list):
            message_id, published_at = value
            return _fetched(int(message_id), str(published_at))
        kind = Message if value.get(IS_STORED) else WholeMessage
        return _made(kind, value)
    except WRONG as error:
        if isinstance(error, UndecodablePayload):
            raise
        raise UndecodablePayload(f"stored message cannot be read: {error}") from error


def _fetched(message_id: int, published_at: str) -> Message:
    from django_pgqueue.tasks import database

    # Not as text alone: what is no time must not reach the database.
    moment = datetime.fromisoformat(published_at)
    with database.cursor() as cursor:
        text = fetch(cursor, message_id, moment)
    if text is None:
        raise Reject(
            f"message {message_id} of {published_at} is gone: the retention of its "
            f"topic has removed it, or somebody has erased it. Keep messages for "
            f"longer with topic(…, retain=…)."
        )
    return _made(Message, decode_value(text))


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
