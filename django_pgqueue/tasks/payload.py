"""
Payload: arguments to JSON and back.

The second hop of a job's life. Whatever could fail in the database fails here first,
with the path of the value, so that the caller's transaction stays usable. Reading is
the mirror image and happens inside the job's own try: a row that cannot be read ends
as one dead letter and its neighbours run.

Besides JSON's own types these travel, as ``{"__pgqueue__": type, "value": …}``:
datetime, date, time, timedelta, Decimal, UUID, bytes, floats from 1e16 on, and saved
model instances, of which model, primary key and database are stored and the row is
fetched at run time; and messages (messages.py). A datetime keeps its offset, not the
name of its zone.
Tuples arrive as lists; members of an Enum with a str or int value as that value.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from django_pgqueue.bounds import FLOAT_PLAIN_MAX
from django_pgqueue.exceptions import (
    InvalidArgument,
    PayloadTooLarge,
    UndecodablePayload,
    shown,
)
from django_pgqueue.log.message import Message
from django_pgqueue.tasks import messages, plain
from django_pgqueue.tasks.plain import plain_items, plain_text
from django_pgqueue.tasks.raised import Reject

INTEGER_LIMIT = 10**plain.INTEGER_DIGITS_MAX

DEPTH_MAX, ENCODER, TAG = plain.DEPTH_MAX, plain.ENCODER, plain.TAG

SCALARS = frozenset({type(None), bool})


class _Unfit(Exception):
    """A value cannot travel; the path grows while the walk unwinds."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.path = ""


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
    text = plain_items(items, unsure=unsure)
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
    except _Unfit as unfit:
        raise InvalidArgument(
            task=task, path=path + unfit.path, problem=unfit.problem
        ) from unfit.__cause__


def encode_value(value: Any) -> str:
    """
    Return one value (a result, headers) as JSON text.

    Raises:
        ValueError: It cannot travel; the message says where and why.
    """
    try:
        return _text(value)
    except _Unfit as unfit:
        raise ValueError(f"value{unfit.path} {unfit.problem}") from unfit.__cause__


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


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _text(value: Any) -> str:
    text = plain_text(value)
    if text is not None:
        return text
    try:
        return ENCODER.encode(_plain(value, 0))
    except _Unfit:
        raise
    except Exception as error:
        # Of a subclass whose methods raise, or a time zone: not our error to die of.
        raise _Unfit(f"cannot be read: {shown(error)}") from error


def _plain(value: Any, depth: int) -> Any:
    """Return *value* as JSON types alone, checked. The common types come first."""
    kind = type(value)
    if kind is str:
        _check_text(value)
        return value
    if kind is int:
        if not -INTEGER_LIMIT < value < INTEGER_LIMIT:
            raise _Unfit("has more than 4,300 digits, which Python would not read back")
        return value
    if kind in SCALARS:
        return value
    if kind is float:
        if not math.isfinite(value):
            raise _Unfit(f"is {value}, which JSON cannot hold")
        if -FLOAT_PLAIN_MAX < value < FLOAT_PLAIN_MAX:
            return value
        return {TAG: "float", "value": repr(value)}
    if kind is dict:
        return _plain_dict(value, depth)
    if kind is list or issubclass(kind, (list, tuple)):
        return _plain_list(value, depth)
    return _plain_other(value, depth)


def _plain_dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    if depth >= DEPTH_MAX:
        raise _Unfit(f"is nested deeper than {DEPTH_MAX} levels, or holds itself")
    plain = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise _Unfit(
                f"has the key {shown(key)}; JSON keys are text, so it would come back "
                f"as another key: use str(key)"
            )
        if key == TAG:
            raise _Unfit(f"has the key {TAG!r}, which is reserved")
        try:
            _check_text(key)
            plain[str.__str__(key)] = _plain(item, depth + 1)
        except _Unfit as unfit:
            unfit.path = (
                f".{key}{unfit.path}"
                if key.isidentifier()
                else (f"[{key!r}]{unfit.path}")
            )
            raise
    return plain


def _plain_list(value: Sequence[Any], depth: int) -> list[Any]:
    if depth >= DEPTH_MAX:
        raise _Unfit(f"is nested deeper than {DEPTH_MAX} levels, or holds itself")
    plain = []
    for place, item in enumerate(value):
        try:
            plain.append(_plain(item, depth + 1))
        except _Unfit as unfit:
            unfit.path = f"[{place}]{unfit.path}"
            raise
    return plain


def _plain_other(value: Any, depth: int) -> Any:
    # The type and not isinstance(): a lazy object claims to be what it wraps.
    kind = type(value)
    if issubclass(kind, Enum):
        if isinstance(value.value, (str, int)):
            return _plain(value.value, depth)
        raise _Unfit(f"is {shown(value)}, an Enum without a str or int value")
    for known, tag in TAGGED.items():
        if issubclass(kind, known):
            return _tagged(value, tag)
    if issubclass(kind, Message):
        return {TAG: "message", "value": _plain(messages.write(value), depth + 1)}
    # Subclasses of the plain types, such as SafeString, travel as those.
    if issubclass(kind, str):
        return _plain(str.__str__(value), depth)
    bases: tuple[Any, ...] = (int, float, dict)
    for base in bases:
        if issubclass(kind, base):
            return _plain(base(value), depth)
    return _plain_django(value, depth)


def _tagged(value: Any, tag: str) -> dict[str, Any]:
    written = {TAG: tag, "value": WRITERS[tag](value)}
    if tag in FOLDED and value.fold and value.tzinfo is None:
        # The second of two equal readings of a clock that is set back.
        written["fold"] = 1
    return written


def _plain_django(value: Any, depth: int) -> Any:
    from django.db.models import Model, QuerySet
    from django.utils.functional import Promise

    if isinstance(value, Model):
        if value.pk is None or value._state.adding:
            raise _Unfit(f"is an unsaved {value._meta.label}: save it first")
        return {
            TAG: "model",
            "value": value._meta.label_lower,
            "pk": _plain(value.pk, depth + 1),
            "db": value._state.db,
        }
    if isinstance(value, QuerySet):
        raise _Unfit(
            "is a QuerySet, which would be evaluated later with other rows: pass "
            "list(queryset.values_list('pk', flat=True))"
        )
    if isinstance(value, Promise):
        raise _Unfit("is a lazy text, whose language is not decided yet: pass str(…)")
    kind = type(value)
    raise _Unfit(
        f"is a {kind.__module__}.{kind.__qualname__}, which cannot be stored as JSON: "
        f"pass its data or its primary key"
    )


def _check_text(value: str) -> None:
    if "\x00" in value:
        raise _Unfit("holds a NUL character, which PostgreSQL cannot store")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Unfit("holds a lone surrogate, which is no character") from None


def _write_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise _Unfit(f"is {value}, which is no number")
    return str(value)


def _write_time(value: time) -> str:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise _Unfit(
            f"is {value!r}; its offset depends on the date, so it would come back "
            f"without one: pass a datetime, or the zone's name"
        )
    return value.isoformat()


def _read_timedelta(value: Sequence[int]) -> timedelta:
    days, seconds, microseconds = value
    return timedelta(days=days, seconds=seconds, microseconds=microseconds)


# datetime before date: every datetime is a date.
TAGGED: dict[type, str] = {
    datetime: "datetime",
    date: "date",
    time: "time",
    timedelta: "timedelta",
    Decimal: "decimal",
    UUID: "uuid",
    bytes: "bytes",
}
WRITERS: dict[str, Callable[[Any], Any]] = {
    "datetime": datetime.isoformat,
    "date": date.isoformat,
    "time": _write_time,
    "timedelta": lambda value: [value.days, value.seconds, value.microseconds],
    "decimal": _write_decimal,
    "uuid": str,
    "bytes": lambda value: base64.b64encode(value).decode(),
}
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

# Types whose values have a fold.
FOLDED = frozenset({"datetime", "time"})

# UUID(5) is an AttributeError, Decimal("x") an ArithmeticError.
READING_FAILS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def _untag(value: dict[str, Any]) -> Any:
    tag = value.get(TAG)
    if tag is None:
        return value
    if tag == "model":
        return _fetch(value)
    if tag == "message":
        return messages.read(value.get("value"), decode_value)
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
