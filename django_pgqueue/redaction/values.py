"""
Values: JSON as Python has it, without the values that nobody should read.

Nothing here raises, and where a value is too deep or too large to be looked through,
what was not looked at is not shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django_pgqueue.redaction.names import PLACEHOLDER, Names
from django_pgqueue.redaction.text import redact_text

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

    Args:
        value: Lists, objects and plain values, as json.loads() returns them; headers
            too. It is not changed.
        patterns: Regular expressions; each is searched in every key, whatever the case.
    """
    return Walk(patterns).value(value, 0)


def redact_errors(errors: Any, patterns: Iterable[str]) -> Any:
    """Return a job's errors with the secrets in messages and tracebacks replaced."""
    asked = tuple(patterns)
    if not isinstance(errors, list):
        return redact(errors, asked)
    return [
        {
            key: redact_text(value, asked) if isinstance(value, str) else value
            for key, value in entry.items()
        }
        if isinstance(entry, dict)
        else entry
        for entry in redact(errors, asked)
    ]


class Walk(Names):
    """One walk over one value: what matches, and how much is still looked at."""

    def __init__(self, patterns: Iterable[str]) -> None:
        super().__init__(patterns)
        self._left = VALUES_MAX

    def value(self, value: Any, depth: int) -> Any:
        """Return *value* with what matches inside of it replaced."""
        if not self.patterns or not isinstance(value, (dict, list, tuple)):
            return value
        if depth >= DEPTH_MAX:
            return PLACEHOLDER
        if isinstance(value, dict):
            return self._object(value, depth)
        shown = []
        for item in value:
            if self._left <= 0:
                shown.append(PLACEHOLDER)
                break
            self._left -= 1
            shown.append(self.value(item, depth + 1))
        return shown

    def _object(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        shown: dict[Any, Any] = {}
        for key, item in value.items():
            if self._left <= 0:
                shown[REST] = PLACEHOLDER
                break
            self._left -= 1
            hidden = self.hides(key if isinstance(key, str) else str(key))
            shown[key] = PLACEHOLDER if hidden else self.value(item, depth + 1)
        return shown
