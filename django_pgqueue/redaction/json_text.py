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

from django_pgqueue.redaction.names import NAMING, PLACEHOLDER, VALUE, Names
from django_pgqueue.redaction.text import Span, hidden_spans

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


@dataclass(slots=True)
class _Open:
    """A list or an object whose end has not come yet."""

    start: int
    is_object: bool
    key: str = ""  # Of the value that comes next, as JSON.
    count: int = 0  # Of items.
    is_naming: bool = False  # Something in it names a secret,
    values: list[Span] = field(default_factory=list)  # which is this.
    is_flagged: bool = False  # The last item was a flag, such as --password.


class _Walk:
    """One walk through a text: where it is, and what it has found."""

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
        # Values to replace: whole; or, of a string, these places of what it says.
        self._hidden: list[tuple[int, int, tuple[str, list[Span]] | None]] = []
        self.secrets: dict[str, str] = {}

    def parts(self) -> Iterator[str]:
        """Yield the text, in parts, with placeholders instead of secrets."""
        self._find()
        done = 0
        # An outer value before what is inside of it.
        for start, end, inside in sorted(self._hidden, key=lambda h: (h[0], -h[1])):
            if start < done:
                continue
            yield self._text[done:start]
            whole = self._text[start:end]
            yield self._masked(*inside) if inside else f'"{self._placeholder(whole)}"'
            done = end
        yield self._text[done:]

    def _find(self) -> None:
        pieces = PIECE.finditer(self._text)
        open_: list[_Open] = []
        is_key_next = False
        for found in pieces:
            piece = found[0]
            if piece in ("]", "}"):
                if open_:
                    closed = open_.pop()
                    self._close(closed)
                    self._meet(open_, closed.start, found.end(), None)
            elif piece == ",":
                is_key_next = bool(open_ and open_[-1].is_object)
            elif piece == ":":
                continue
            elif is_key_next:
                open_[-1].key, is_key_next = piece, False
            elif self._is_secret(open_, piece):
                start, end = found.start(), self._end(found, pieces)
                self._hidden.append((start, end, None))
                self._meet(open_, start, end, None)
            elif piece in ("[", "{"):
                is_key_next = piece == "{"
                open_.append(_Open(found.start(), is_object=is_key_next))
            else:
                self._scalar(open_, found)
        while open_:
            # The text is cut off: what would name a value may have come later.
            unclosed = open_.pop()
            unclosed.is_naming |= unclosed.is_object
            self._close(unclosed)
            self._meet(open_, unclosed.start, len(self._text), None)

    def _scalar(self, open_: list[_Open], found: re.Match[str]) -> None:
        """Look into a string; note what it may name."""
        piece, text = found[0], None
        if piece[0] == '"':
            text, is_cut = _text_of(piece)
            spans = hidden_spans(text, self._names, is_cut=is_cut)
            if spans:
                self._hidden.append((*found.span(), (text, spans)))
        self._meet(open_, *found.span(), text)

    def _meet(self, open_: list[_Open], start: int, end: int, text: str | None) -> None:
        """Note a value in what is open around it; *text*: of a string that is shown."""
        if not open_:
            return
        around = open_[-1]
        if around.is_object:
            key = _unquoted(around.key).lower()
            if key == VALUE:
                around.values.append((start, end))
            elif key in NAMING and self._names.names_secret(text):
                around.is_naming = True
            return
        around.count += 1
        around.is_flagged = self._names.is_secret_flag(text)
        if around.count == 1:
            around.is_naming = self._names.names_secret(text)
        elif around.count == 2 and text is not None:
            around.values.append((start, end))

    def _close(self, closed: _Open) -> None:
        is_pair = closed.is_object or closed.count == 2
        if closed.is_naming and is_pair:
            self._hidden += [(start, end, None) for start, end in closed.values]

    def _is_secret(self, open_: list[_Open], piece: str) -> bool:
        """Return whether the value that begins with *piece* is one."""
        if not open_:
            return False
        around = open_[-1]
        if around.is_object:
            if around.key not in self._known:
                self._known[around.key] = self._names.hides(_unquoted(around.key))
            return self._known[around.key]
        if around.is_flagged and piece[0] == '"':
            return True
        if len(open_) > 1 or not self._places:
            return False
        return self._places[min(around.count, len(self._places) - 1)]

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

    def _masked(self, text: str, spans: list[Span]) -> str:
        """Return the JSON of a string, with placeholders inside of it."""
        parts: list[str] = []
        done = 0
        for start, end in spans:
            secret = json.dumps(text[start:end], ensure_ascii=False)
            parts += text[done:start], self._placeholder(secret)
            done = end
        return json.dumps("".join((*parts, text[done:])), ensure_ascii=False)

    def _placeholder(self, secret: str) -> str:
        if self._number is None:
            return PLACEHOLDER
        placeholder = f"{PLACEHOLDER[:-1]} {self._number}]"
        self._number += 1
        self.secrets[placeholder] = secret
        return placeholder


def _text_of(piece: str) -> tuple[str, bool]:
    """Return what a string says, and whether its end is cut off."""
    for ending in ("", '"', '\\"'):
        try:
            return str(json.loads(piece + ending, strict=False)), bool(ending)
        except ValueError:
            continue
    # Cut off within an escape.
    return piece[1:], True


def _unquoted(key: str) -> str:
    try:
        return str(json.loads(key))
    except ValueError:
        return key.strip('"')
