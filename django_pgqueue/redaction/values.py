"""
Values: JSON, as Python has it or as text, without the values that nobody should read.

Nothing here raises, and where a value is too deep or too large to be looked through,
what was not looked at is not shown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django_pgqueue.redaction.names import NAMING, PLACEHOLDER, VALUE, Names
from django_pgqueue.redaction.text import hidden_spans, replaced

# Deeper values are replaced whole: no task takes them (tasks/payload.py).
DEPTH_MAX = 100

# Items of lists and objects that are looked at, half a second at most; the rest is
# one placeholder.
VALUES_MAX = 100_000

# The key under which stands what was left out of an object.
REST = "…"


def redact(value: Any, patterns: Iterable[str]) -> Any:
    """
    Return a JSON value with everything under a matching key replaced.

    So is what has its name beside it, {"name": "password", "value": …} or a pair, and
    what redact_text() finds inside of strings.

    Args:
        value: Lists, objects and plain values, as json.loads() returns them; headers
            too. It is not changed.
        patterns: Regular expressions; each is searched in every key, whatever the case.
    """
    return Walk(patterns).value(value, 0)


class Walk(Names):
    """One walk over one value: what matches, and how much is still looked at."""

    def __init__(self, patterns: Iterable[str], values_max: float = VALUES_MAX) -> None:
        super().__init__(patterns)
        self._left = values_max

    def value(self, value: Any, depth: int) -> Any:
        """Return *value* with what matches inside of it replaced."""
        if isinstance(value, str):
            return replaced(value, hidden_spans(value, self))
        if not self.patterns or not isinstance(value, (dict, list, tuple)):
            return value
        if depth >= DEPTH_MAX:
            return PLACEHOLDER
        if isinstance(value, dict):
            return self._object(value, depth)
        return self.items(value, depth)

    def items(
        self,
        values: Sequence[Any],
        depth: int,
        is_secret: Callable[[int], bool] = lambda place: False,
    ) -> list[Any]:
        """
        Return the items of a list with what is secret replaced.

        Args:
            values: The list.
            depth: In how many others it stands.
            is_secret: Whether the item at a place is, whatever it is.
        """
        shown: list[Any] = []
        is_pair = len(values) == 2 and self.names_secret(values[0]) and not is_secret(0)
        previous = None
        for place, item in enumerate(values):
            if self._left <= 0:
                shown.append(PLACEHOLDER)
                break
            self._left -= 1
            is_named = isinstance(item, str) and (
                (is_pair and place == 1) or self.is_secret_flag(previous)
            )
            hidden = is_named or is_secret(place)
            shown.append(PLACEHOLDER if hidden else self.value(item, depth + 1))
            previous = None if hidden else item
        return shown

    def _object(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        shown: dict[Any, Any] = {}
        is_named = any(
            isinstance(key, str) and key.lower() in NAMING and self.names_secret(item)
            for key, item in value.items()
        )
        for key, item in value.items():
            if self._left <= 0:
                shown[REST] = PLACEHOLDER
                break
            self._left -= 1
            name = key if isinstance(key, str) else str(key)
            hidden = self.hides(name) or (is_named and name.lower() == VALUE)
            shown[key] = PLACEHOLDER if hidden else self.value(item, depth + 1)
        return shown


# JSON as text ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number:
    """A number as PostgreSQL wrote it, since a float of Python may lose digits."""

    text: str


def redact_json(
    text: str, patterns: Iterable[str], *, secret_places: Sequence[bool] = ()
) -> str:
    """
    Return JSON *text* with its secrets replaced.

    A text without secrets is returned as it is. A text that Python cannot parse, such
    as one that is cut off, is replaced as a whole.

    Args:
        text: A column as PostgreSQL writes it.
        patterns: Regular expressions for names, as redact() takes them.
        secret_places: When it is the column args: whether each of its items is secret;
            the last one holds for all further items.
    """
    walk = Walk(patterns, values_max=math.inf)
    if not walk.patterns and not secret_places:
        return text
    try:
        value = json.loads(
            text, parse_int=Number, parse_float=Number, parse_constant=_refuse
        )
    except (ValueError, RecursionError):
        return f'"{PLACEHOLDER}"'
    if secret_places and isinstance(value, list):
        last = len(secret_places) - 1
        shown: Any = walk.items(value, 0, lambda at: secret_places[min(at, last)])
    else:
        shown = walk.value(value, 0)
    return text if shown == value else _written(shown)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON.")


def _written(value: Any) -> str:
    """Return *value* as PostgreSQL writes JSON."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, dict):
        items = (f"{_written(key)}: {_written(item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False)
