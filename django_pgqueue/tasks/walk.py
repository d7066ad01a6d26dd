"""
Walk: a value as JSON text, or the reason why it cannot be one, with the path to it.

Most arguments are texts, numbers, and lists and dicts of them. For those plain_text()
asks for the types and searches the finished text for what could not be stored or read
back: one call into C. Where it is not sure, walked() looks at each value, and finds the
same text or the error. So nothing may be accepted here that it would refuse or write in
another way; a property test compares the two. Types that only Django or this package
knows are their caller's.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain, islice
from typing import Any
from uuid import UUID

from django_pgqueue.bounds import FLOAT_PLAIN_MAX
from django_pgqueue.exceptions import shown

# Python 3.11 reads no JSON deeper than about 1,000 levels; nobody needs a tenth.
DEPTH_MAX = 100

# Python turns no text of more digits into an int, and none into such a text, unless
# sys.set_int_max_str_digits() says otherwise.
INTEGER_DIGITS_MAX = 4_300

# Marks an object that stands for a value of another type.
TAG = "__pgqueue__"

# One for all: json.dumps() makes an encoder at each call with options.
ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

# The very types: an Enum, a lazy text or a namedtuple is none of them.
PLAIN_SCALARS = frozenset({str, int, float, bool, type(None)})
LISTS = frozenset({list, tuple})
KNOWN = PLAIN_SCALARS | LISTS | {dict}
KEYS = frozenset({str})

# On one level. What holds itself twice would double at each; and beyond that many, it
# is not the look at them that takes the time.
VALUES_MAX = 100_000

# In a text, each may mean that there is something to look at: a NUL character, a float
# from 1e16 on, a reserved key. In an innocent string it costs a look.
NUL, LARGE_FLOAT = "\\u0000", "e+"


def plain_text(value: Any) -> str | None:
    """Return *value* as JSON text; None: it needs a closer look."""
    return _text(value) if _is_plain((value,)) else None


def plain_items(
    items: Sequence[Any], *, unsure: Sequence[Any] | None = None
) -> str | None:
    """
    Return the JSON texts of all items with commas between; None: look at each.

    Args:
        items: One or more containers.
        unsure: What stands in them and is to be looked at; None: all of it.
    """
    is_plain = _is_plain(items if unsure is None else unsure)
    text = _text(items) if is_plain else None
    return None if text is None else text[1:-1]


def _is_plain(values: Sequence[Any]) -> bool:
    """Return whether all values, and all within them, are of JSON's own types."""
    for _ in range(DEPTH_MAX + 1):
        if len(values) > VALUES_MAX:
            return False
        kinds = {*map(type, values)}
        if kinds <= PLAIN_SCALARS:
            return True
        if not kinds <= KNOWN:
            return False
        dicts: Sequence[Any] = ()
        if dict in kinds:
            dicts = [value for value in values if type(value) is dict]
            if not KEYS.issuperset(map(type, chain.from_iterable(dicts))):
                return False
        inner = chain.from_iterable(map(dict.values, dicts))
        if len(dicts) < len(values):
            lists = [value for value in values if type(value) in LISTS]
            inner = chain(inner, chain.from_iterable(lists))
        # One level deeper, all at once: that is in C, and recursion is not.
        values = [*islice(inner, VALUES_MAX + 1)]
    return False


def _text(value: Any) -> str | None:
    if not 0 < sys.get_int_max_str_digits() <= INTEGER_DIGITS_MAX:
        return None
    try:
        text = ENCODER.encode(value)
        if not text.isascii():
            text.encode()  # A lone surrogate cannot be.
    except Exception:
        # NaN, an infinity, a huge int; or a container that another thread changes.
        return None
    return None if NUL in text or LARGE_FLOAT in text or TAG in text else text


# Piece by piece ----------------------------------------------------------------------


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
    for known, (tag, write) in TAGGED.items():
        if issubclass(kind, known):
            written = {TAG: tag, "value": write(value)}
            if tag in FOLDED and value.fold and value.tzinfo is None:
                # The second of two equal readings of a clock that is set back.
                written["fold"] = 1
            return written
    # Subclasses of the plain types, such as SafeString, travel as those.
    if issubclass(kind, str):
        return walked(str.__str__(value), depth, others)
    bases: tuple[Any, ...] = (int, float, dict)
    for base in bases:
        if issubclass(kind, base):
            return walked(base(value), depth, others)
    return others(value, depth)


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
TAGGED: dict[type, tuple[str, Callable[[Any], Any]]] = {
    datetime: ("datetime", datetime.isoformat),
    date: ("date", date.isoformat),
    time: ("time", _write_time),
    timedelta: (
        "timedelta",
        lambda value: [value.days, value.seconds, value.microseconds],
    ),
    Decimal: ("decimal", _write_decimal),
    UUID: ("uuid", str),
    bytes: ("bytes", lambda value: base64.b64encode(value).decode()),
}

# Types whose values have a fold.
FOLDED = frozenset({"datetime", "time"})
