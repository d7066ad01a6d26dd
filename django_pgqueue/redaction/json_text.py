"""
JSON as text: what is secret is replaced, and all the rest stays as PostgreSQL wrote it.

For a column that is cut off at a limit, that Python cannot read at all (1e5000), or
that nobody needs as Python values: the text is gone through piece by piece. The secrets
can be numbered, for a form that gives them back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from django_pgqueue.redaction.names import PLACEHOLDER, Names

# A string (perhaps cut off), a bracket or separator, or a number or word.
PIECE = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{},:]|[^\s"\[\]{},:]+', re.DOTALL)


@dataclass(slots=True)
class Redacted:
    """JSON text without secrets."""

    text: str
    # The JSON text of each secret, by its placeholder, if they were numbered.
    secrets: dict[str, str] = field(default_factory=dict)


def redact_json(
    text: str,
    names: Names,
    *,
    secret_places: Sequence[bool] = (),
    numbered_from: int | None = None,
) -> Redacted:
    """
    Return JSON *text* with its secrets replaced.

    Args:
        text: A column as PostgreSQL writes it, perhaps cut off.
        names: Which keys are secret.
        secret_places: When it is the column args: whether each of its items is secret;
            the last one holds for all further items.
        numbered_from: Give each placeholder a number, the first one this.
    """
    if not names.patterns and not secret_places:
        return Redacted(text)
    walk = _Walk(text, names, secret_places, numbered_from)
    return Redacted("".join(walk.parts()), walk.secrets)


class _Walk:
    """One walk through a text: where it is, and what it keeps."""

    def __init__(
        self,
        text: str,
        names: Names,
        secret_places: Sequence[bool],
        number: int | None,
    ) -> None:
        self._text = text
        self._places = secret_places
        self._number = number
        self._known: dict[str, bool] = {}
        self._names = names
        self.secrets: dict[str, str] = {}

    def parts(self) -> Iterator[str]:
        """Yield the text, in parts, with placeholders instead of secrets."""
        pieces = PIECE.finditer(self._text)
        done = 0
        # Of each open bracket, whether it is an object's; and the place in the list
        # that is the whole text.
        open_objects: list[bool] = []
        place, key = 0, ""
        is_key_next = False
        for found in pieces:
            piece = found[0]
            if piece in ("]", "}"):
                if open_objects:
                    open_objects.pop()
                continue
            if piece == ",":
                is_key_next = bool(open_objects and open_objects[-1])
                place += len(open_objects) == 1
                continue
            if piece == ":":
                continue
            if is_key_next:
                key, is_key_next = piece, False
                continue
            if self._is_secret(open_objects, key, place):
                end = self._end(found, pieces)
                yield self._text[done : found.start()]
                yield self._placeholder(self._text[found.start() : end])
                done = end
            elif piece in ("[", "{"):
                open_objects.append(piece == "{")
                is_key_next = piece == "{"
        yield self._text[done:]

    def _is_secret(self, open_objects: list[bool], key: str, place: int) -> bool:
        """Return whether the value that begins here is one."""
        if not open_objects:
            return False
        if open_objects[-1]:
            if key not in self._known:
                self._known[key] = self._names.hides(_unquoted(key))
            return self._known[key]
        if len(open_objects) > 1 or not self._places:
            return False
        return self._places[min(place, len(self._places) - 1)]

    def _end(self, found: re.Match[str], pieces: Iterator[re.Match[str]]) -> int:
        """Return where the value ends that begins at *found*."""
        depth = found[0] in ("[", "{")
        end = found.end()
        level = int(depth)
        while level:
            following = next(pieces, None)
            if following is None:
                return len(self._text)
            level += (following[0] in ("[", "{")) - (following[0] in ("]", "}"))
            end = following.end()
        return end

    def _placeholder(self, secret: str) -> str:
        if self._number is None:
            return f'"{PLACEHOLDER}"'
        placeholder = f"{PLACEHOLDER[:-1]} {self._number}]"
        self._number += 1
        self.secrets[placeholder] = secret
        return f'"{placeholder}"'


def _unquoted(key: str) -> str:
    try:
        return str(json.loads(key))
    except ValueError:
        return key.strip('"')
