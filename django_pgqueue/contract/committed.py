"""Committed: the document that a project keeps, and what code has made of it since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from django_pgqueue.contract.breaks import Break, breaks
from django_pgqueue.contract.document import MORE, TOPIC, document, text_of
from django_pgqueue.contract.references import words_of
from django_pgqueue.exceptions import DeclarationError, InvalidOption
from django_pgqueue.tasks.modules import failed_modules, import_problem

# "channels", its key, "messages", its name.
PARTS_OF_A_MESSAGE = 4

WRITE = "python manage.py pgqueue asyncapi"


class Compared(NamedTuple):
    """A committed document beside code as it is."""

    breaks: list[Break]
    # Whether the text of both is the same.
    is_current: bool


def of_project() -> dict[str, Any]:
    """
    Return the document of this project.

    Raises:
        DeclarationError: A module of tasks cannot be imported, or a type hint cannot
            be read.
        MissingExtra: pydantic is not installed.
    """
    from django.conf import settings

    for path, error in failed_modules().items():
        raise DeclarationError(
            f"{import_problem(path, error)}: what it declares would be missing."
        )
    urls = getattr(settings, "ROOT_URLCONF", None) or "django_pgqueue"
    return document(urls.partition(".")[0])


def compare(path: str) -> Compared:
    """
    Compare the document in a file with what code declares.

    Raises:
        InvalidOption: The file cannot be read, or has no such document.
        DeclarationError, MissingExtra: As of_project().
    """
    before, now = _read(path), of_project()
    return Compared(breaks(before, now), text_of(before) == text_of(now))


def _read(path: str) -> dict[str, Any]:
    way_out = f"Write it: {WRITE} > {path}"
    try:
        read = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidOption(
            f"The contract {path!r} cannot be read: {error}. {way_out}"
        ) from None
    if not _is_ours(read):
        raise InvalidOption(
            f"The contract {path!r} is no document that `pgqueue asyncapi` has "
            f"written. {way_out}"
        )
    found: dict[str, Any] = read
    return found


def _is_ours(read: Any) -> bool:
    """Whether a document has what is looked at of it; somebody may have edited it."""
    channels = read.get("channels") if isinstance(read, dict) else None
    operations = read.get("operations", {}) if isinstance(read, dict) else None
    if not isinstance(channels, dict) or not isinstance(operations, dict):
        return False
    for channel in channels.values():
        messages = channel.get("messages") if isinstance(channel, dict) else None
        if not isinstance(messages, dict) or not isinstance(channel.get(MORE), dict):
            return False
        needed = [*messages.values()]
        if channel[MORE].get("kind") == TOPIC:
            needed.append(messages.get(channel.get("address")))
        if not all(isinstance(each, dict) and "payload" in each for each in needed):
            return False
    return all(
        len(words_of(str(message.get("$ref")))) == PARTS_OF_A_MESSAGE
        for operation in operations.values()
        for message in operation.get("messages", ())
    )
