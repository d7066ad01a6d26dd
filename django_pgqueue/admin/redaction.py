"""
Redaction of JSON as text: what PGQUEUE["REDACT"] hides is replaced on every page.

tasks/redact.py says which names are secret, and works on values. A page has text: that
of a column which is cut off at a limit, or which Python cannot read at all (1e5000).
So the text is gone through piece by piece here, and all the rest of it stays as
PostgreSQL wrote it. Where a form shows arguments to be edited, each secret gets a
number, by which the form that comes back is filled in again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.tasks.redact import PLACEHOLDER, redact, redact_job

# A string (perhaps cut off), a bracket or separator, or a number or word.
PIECE = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{},:]|[^\s"\[\]{},:]+', re.DOTALL)

# Any form of the placeholder, with a number or without.
ANY_PLACEHOLDER = re.compile(r"\[redacted(?: \d+)?\]")

# Positional arguments that are asked for by the name of their parameter; the rest of
# the list is as its last one.
PLACES_MAX = 1_000


@dataclass(slots=True)
class Redacted:
    """JSON text without secrets."""

    text: str
    # The JSON text of each secret, by its placeholder, if they were numbered.
    secrets: dict[str, str] = field(default_factory=dict)


def redact_json(
    text: str, *, task: str | None = None, numbered_from: int | None = None
) -> Redacted:
    """
    Return JSON *text* with its secrets replaced.

    Args:
        text: A column as PostgreSQL writes it, perhaps cut off.
        task: When it is the column args: whose parameters name the places.
        numbered_from: Give each placeholder a number, the first one this.
    """
    if not get_settings().redact:
        return Redacted(text)
    walk = _Walk(text, () if task is None else _secret_places(task), numbered_from)
    return Redacted("".join(walk.parts()), walk.secrets)


def is_secret(key: str) -> bool:
    """Return whether the value under *key* is hidden."""
    return bool(redact({key: 0}, get_settings().redact)[key] == PLACEHOLDER)


def _secret_places(task: str) -> Sequence[bool]:
    shown, _ = redact_job([0] * PLACES_MAX, {}, task, get_settings())
    return [value == PLACEHOLDER for value in shown]


class _Walk:
    """One walk through a text: where it is, and what it keeps."""

    def __init__(
        self, text: str, secret_places: Sequence[bool], number: int | None
    ) -> None:
        self._text = text
        self._places = secret_places
        self._number = number
        self._known: dict[str, bool] = {}
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
                self._known[key] = is_secret(_unquoted(key))
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


class NotRestored(ValueError):
    """A placeholder stands where it cannot stay."""


def restore(value: Any, secrets: dict[str, str], *, task: str, is_args: bool) -> Any:
    """
    Return the edited *value* with the secrets back in their places.

    A placeholder that was left as it was stands for the value that it hid, also where
    its object has moved within a list. It may not come to stand where its value would
    be shown, and no placeholder is ever stored.

    Raises:
        NotRestored: With the path, and what to do.
    """
    places = _secret_places(task) if is_args else ()
    put_back = _PutBack(secrets)
    if is_args and isinstance(value, list):
        return [
            put_back.at(
                item, f"[{place}]", is_hidden=places[min(place, len(places) - 1)]
            )
            for place, item in enumerate(value)
        ]
    return put_back.at(value, "", is_hidden=False)


class _PutBack:
    def __init__(self, secrets: dict[str, str]) -> None:
        self._secrets = secrets

    def at(self, value: Any, path: str, *, is_hidden: bool) -> Any:
        if isinstance(value, str):
            return self._text(value, path, is_hidden)
        if isinstance(value, dict):
            return {
                key: self.at(item, f"{path}.{key}", is_hidden=is_secret(key))
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [
                self.at(item, f"{path}[{place}]", is_hidden=False)
                for place, item in enumerate(value)
            ]
        return value

    def _text(self, value: str, path: str, is_hidden: bool) -> Any:
        if value in self._secrets:
            if not is_hidden:
                raise NotRestored(
                    f"{path.lstrip('.')} is {value}, whose value would be shown there:"
                    f" leave it under its own name, or write a value"
                )
            try:
                return json.loads(self._secrets[value])
            except (ValueError, RecursionError):
                raise NotRestored(
                    f"{path.lstrip('.')} is {value}, whose value cannot be read: "
                    f"write another one"
                ) from None
        if ANY_PLACEHOLDER.fullmatch(value) or any(
            placeholder in value for placeholder in self._secrets
        ):
            raise NotRestored(
                f"{path.lstrip('.')} is {value[:80]!r}, which stands for no value: "
                f"write the value"
            )
        return value
