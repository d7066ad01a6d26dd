"""
Walk: a value looked at piece by piece, and made of JSON's own types alone.

What plain.py is not sure of comes here, to be written or refused, with the path to the
reason. Types that only Django or this package knows are their caller's.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from django_pgqueue.bounds import FLOAT_PLAIN_MAX
from django_pgqueue.exceptions import shown
from django_pgqueue.tasks.plain import (
    DEPTH_MAX,
    ENCODER,
    INTEGER_DIGITS_MAX,
    TAG,
    plain_text,
)

INTEGER_LIMIT = 10**INTEGER_DIGITS_MAX

SCALARS = frozenset({type(None), bool})


class Unfit(Exception):
    """A value cannot travel; the path grows while the walk unwinds."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.path = ""


# What becomes of a value of any other type, and its depth.
Others = Callable[[Any, int], Any]


def refused(value: Any, depth: int) -> Any:
    """Raise Unfit: nothing else can travel."""
    kind = type(value)
    raise Unfit(
        f"is a {kind.__module__}.{kind.__qualname__}, which cannot be stored as JSON: "
        f"pass its data or its primary key"
    )


def text_of(value: Any, others: Others = refused) -> str:
    """
    Return *value* as JSON text.

    Args:
        value: Any.
        others: What becomes of values of other types than those below.

    Raises:
        Unfit: It cannot travel.
    """
    text = plain_text(value)
    if text is not None:
        return text
    try:
        return ENCODER.encode(walked(value, 0, others))
    except Unfit:
        raise
    except Exception as error:
        # Of a subclass whose methods raise, or a time zone: not our error to die of.
        raise Unfit(f"cannot be read: {shown(error)}") from error


def walked(value: Any, depth: int, others: Others) -> Any:
    """Return *value* as JSON types alone, checked. The common types come first."""
    kind = type(value)
    if kind is str:
        _check_text(value)
        return value
    if kind is int:
        if not -INTEGER_LIMIT < value < INTEGER_LIMIT:
            raise Unfit("has more than 4,300 digits, which Python would not read back")
        return value
    if kind in SCALARS:
        return value
    if kind is float:
        if not math.isfinite(value):
            raise Unfit(f"is {value}, which JSON cannot hold")
        if -FLOAT_PLAIN_MAX < value < FLOAT_PLAIN_MAX:
            return value
        return {TAG: "float", "value": repr(value)}
    if kind is dict:
        return _dict(value, depth, others)
    if kind is list or issubclass(kind, (list, tuple)):
        return _list(value, depth, others)
    return _other(value, depth, others)


def _dict(value: dict[Any, Any], depth: int, others: Others) -> dict[str, Any]:
    if depth >= DEPTH_MAX:
        raise Unfit(f"is nested deeper than {DEPTH_MAX} levels, or holds itself")
    plain = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise Unfit(
                f"has the key {shown(key)}; JSON keys are text, so it would come back "
                f"as another key: use str(key)"
            )
        if key == TAG:
            raise Unfit(f"has the key {TAG!r}, which is reserved")
        try:
            _check_text(key)
            plain[str.__str__(key)] = walked(item, depth + 1, others)
        except Unfit as unfit:
            unfit.path = (
                f".{key}{unfit.path}"
                if key.isidentifier()
                else (f"[{key!r}]{unfit.path}")
            )
            raise
    return plain


def _list(value: Sequence[Any], depth: int, others: Others) -> list[Any]:
    if depth >= DEPTH_MAX:
        raise Unfit(f"is nested deeper than {DEPTH_MAX} levels, or holds itself")
    plain = []
    for place, item in enumerate(value):
        try:
            plain.append(walked(item, depth + 1, others))
        except Unfit as unfit:
            unfit.path = f"[{place}]{unfit.path}"
            raise
    return plain


def _other(value: Any, depth: int, others: Others) -> Any:
    # The type and not isinstance(): a lazy object claims to be what it wraps.
    kind = type(value)
    if issubclass(kind, Enum):
        if isinstance(value.value, (str, int)):
            return walked(value.value, depth, others)
        raise Unfit(f"is {shown(value)}, an Enum without a str or int value")
    for known, tag in TAGGED.items():
        if issubclass(kind, known):
            return _tagged(value, tag)
    # Subclasses of the plain types, such as SafeString, travel as those.
    if issubclass(kind, str):
        return walked(str.__str__(value), depth, others)
    bases: tuple[Any, ...] = (int, float, dict)
    for base in bases:
        if issubclass(kind, base):
            return walked(base(value), depth, others)
    return others(value, depth)


def _tagged(value: Any, tag: str) -> dict[str, Any]:
    written = {TAG: tag, "value": WRITERS[tag](value)}
    if tag in FOLDED and value.fold and value.tzinfo is None:
        # The second of two equal readings of a clock that is set back.
        written["fold"] = 1
    return written


def _check_text(value: str) -> None:
    if "\x00" in value:
        raise Unfit("holds a NUL character, which PostgreSQL cannot store")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unfit("holds a lone surrogate, which is no character") from None


def _write_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise Unfit(f"is {value}, which is no number")
    return str(value)


def _write_time(value: time) -> str:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise Unfit(
            f"is {value!r}; its offset depends on the date, so it would come back "
            f"without one: pass a datetime, or the zone's name"
        )
    return value.isoformat()


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

# Types whose values have a fold.
FOLDED = frozenset({"datetime", "time"})
