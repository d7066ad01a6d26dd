"""
Plain: JSON text in one call into C, of values that need no closer look.

Most arguments are texts, numbers, and lists and dicts of them. For those it is enough
to ask for the types and to search the finished text for what could not be stored or
read back. None says that this is not enough: tasks/payload.py then looks at each value,
and finds the same text or the error. So nothing may be accepted here that it would
refuse or write in another way; a property test compares the two.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

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
SCALARS = frozenset({str, int, float, bool, type(None)})
LISTS = frozenset({list, tuple})
KNOWN = SCALARS | LISTS | {dict}
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
        if kinds <= SCALARS:
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
