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
from django_pgqueue.redaction.names import PLACEHOLDER, Names
from django_pgqueue.redaction.values import redact
from django_pgqueue.tasks.redact import redact_job, secret_places

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
    settings = get_settings()
    restored = _put_back(value, secrets, "")
    if is_args:
        shown, _ = redact_job(restored, {}, task, settings)
    else:
        shown = redact(restored, settings.redact)
    _check_hidden(value, shown, secrets, "")
    return restored


def _put_back(value: Any, secrets: dict[str, str], path: str) -> Any:
    """Return *value* with a secret for each placeholder, wherever that stands now."""
    if isinstance(value, dict):
        return {
            key: _put_back(item, secrets, f"{path}.{key}")
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            _put_back(item, secrets, f"{path}[{place}]")
            for place, item in enumerate(value)
        ]
    if not isinstance(value, str):
        return value
    if value in secrets:
        return _read(value, secrets, path)
    if ANY_PLACEHOLDER.fullmatch(value):
        raise _stands_for_none(value, path)

    def part(found: re.Match[str]) -> str:
        if found[0] == PLACEHOLDER:  # Of somebody's own text.
            return found[0]
        secret = _read(found[0], secrets, path) if found[0] in secrets else None
        if not isinstance(secret, str):
            raise _stands_for_none(value, path)
        return secret

    return ANY_PLACEHOLDER.sub(part, value)


def _read(placeholder: str, secrets: dict[str, str], path: str) -> Any:
    try:
        return json.loads(secrets[placeholder])
    except (ValueError, RecursionError):
        raise NotRestored(
            f"{path.lstrip('.')} is {placeholder}, whose value cannot be read: "
            f"write another one"
        ) from None


def _stands_for_none(value: str, path: str) -> NotRestored:
    return NotRestored(
        f"{path.lstrip('.')} is {value[:80]!r}, which stands for no value: "
        f"write the value"
    )


def _check_hidden(edited: Any, shown: Any, secrets: dict[str, str], path: str) -> None:
    """Refuse a placeholder whose value would be *shown*, once it is put back."""
    if shown == PLACEHOLDER:
        return
    if isinstance(edited, dict):
        for key, item in edited.items():
            _check_hidden(item, shown.get(key, PLACEHOLDER), secrets, f"{path}.{key}")
    elif isinstance(edited, list):
        for place, item in enumerate(edited):
            now = shown[place] if place < len(shown) else PLACEHOLDER
            _check_hidden(item, now, secrets, f"{path}[{place}]")
    elif (
        isinstance(edited, str)
        and any(map(edited.__contains__, secrets))
        and ANY_PLACEHOLDER.sub(PLACEHOLDER, edited) != shown
    ):
        raise NotRestored(
            f"{path.lstrip('.')} is {edited[:80]}, whose value would be shown there: "
            f"leave it under its own name, or write a value"
        )
