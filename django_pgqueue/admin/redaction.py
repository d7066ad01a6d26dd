"""
Redaction on pages: what PGQUEUE["REDACT"] hides is replaced on every one.

redaction/ says how. A page shows JSON as text: that of a column which is cut off at a
limit, or which Python cannot read at all (1e5000). Where a form shows arguments to be
edited, each secret gets a number, by which the form that comes back is filled in again.
"""

from __future__ import annotations

import json
import re
from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.redaction import json_text
from django_pgqueue.redaction.json_text import Redacted
from django_pgqueue.redaction.names import Names
from django_pgqueue.tasks.redact import secret_places

# Any form of the placeholder, with a number or without.
ANY_PLACEHOLDER = re.compile(r"\[redacted(?: \d+)?\]")


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
    patterns = get_settings().redact
    places = () if task is None else secret_places(task, patterns)
    return json_text.redact_json(
        text, Names(patterns), secret_places=places, numbered_from=numbered_from
    )


def is_secret(key: str) -> bool:
    """Return whether the value under *key* is hidden."""
    return Names(get_settings().redact).hides(key)


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
    places = secret_places(task, get_settings().redact) if is_args else ()
    put_back = _PutBack(secrets)
    if is_args and isinstance(value, list):
        return [
            put_back.at(
                item,
                f"[{place}]",
                is_hidden=bool(places) and places[min(place, len(places) - 1)],
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
