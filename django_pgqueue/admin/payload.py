"""
Payload: what a job carries, as text that is safe and readable on a page.

PostgreSQL stores JSON that Python cannot read (1e5000, three thousand brackets), and
such a job is just the one that somebody wants to look at. So the columns are fetched
as text and laid out as text; nothing here is parsed into Python values, except the
errors, which our own workers write.

What is secret by PGQUEUE["REDACT"] is replaced before anything is laid out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast, Left
from django.http import HttpRequest
from django.utils.dateparse import parse_datetime
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin import moments
from django_pgqueue.conf import get_settings
from django_pgqueue.operators import human
from django_pgqueue.redaction import values
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.tasks.redact import secret_places

VIEW_PAYLOAD = "pgqueue.view_payload"

# Characters of one column that a page shows, and that it fetches. Secrets are found
# in whole JSON only, so a longer column is masked as a whole.
CHARACTERS_MAX = 100_000
FETCHED_CHARACTERS_MAX = 1_000_000
# 100 errors of a message and a traceback each, as tasks/errors.py shortens them.
ERRORS_CHARACTERS_MAX = 4_000_000

# Text up to this length stays on its line.
LINE_CHARACTERS_MAX = 72
INDENT_LEVELS_MAX = 24

# A string (perhaps cut off), a bracket or separator, or a number or word.
PIECE = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{},:]|[^\s"\[\]{},:]+', re.DOTALL)

# The kind shown for an entry that no worker wrote.
UNREADABLE = "unreadable"

# Shown for a key to those who may not see payloads.
HIDDEN = _("hidden: to see it needs pgqueue.view_payload")

# Entries whose words are ours or people's: no secret of the task.
BY_PEOPLE = (
    *("edited", "set_aside", "cancelled", "cancel_requested", "superseded"),
    "unknown_task",
)


@dataclass(frozen=True, slots=True)
class Payload:
    """One column of JSON, laid out."""

    label: str | Promise
    text: str
    is_cut: bool


# One entry of a job's errors: an attempt that failed, or what was done to it.
Failure = dict[str, Any]


def may_see(request: HttpRequest) -> bool:
    """Return whether the user may see arguments, results and tracebacks."""
    return request.user.has_perm(VIEW_PAYLOAD)


def hide(row: Any, columns: Iterable[str]) -> None:
    """Put HIDDEN for what *columns* of a row hold."""
    for column in columns:
        if getattr(row, column, None) is not None:
            setattr(row, column, HIDDEN)


def as_text(column: str, characters_max: int = FETCHED_CHARACTERS_MAX) -> Left:
    """Return the JSON in *column* as text; one character too much tells it was cut."""
    return Left(Cast(column, TextField()), characters_max + 1)


def redact_json(text: str, *, task: str | None = None) -> str:
    """
    Return JSON *text* with its secrets replaced; all of it, if Python cannot parse it.

    Args:
        text: A column as PostgreSQL writes it.
        task: When it is the column args: whose parameters name the places.
    """
    patterns = get_settings().redact
    places = () if task is None else secret_places(task, patterns)
    return values.redact_json(text, patterns, secret_places=places)


def payload(
    label: str | Promise,
    text: str,
    *,
    task: str | None = None,
    characters_max: int = CHARACTERS_MAX,
) -> Payload:
    """
    Return the text that as_text() fetched: redacted, laid out and cut to its limit.

    Args:
        label: The name of the column.
        text: What as_text() fetched.
        task: When it is the column args: whose arguments they are.
        characters_max: Of the text that is shown.
    """
    shown = redact_json(text, task=task)
    is_cut = max(len(text), len(shown)) > characters_max
    return Payload(label, laid_out(shown[:characters_max]), is_cut=is_cut)


def laid_out(text: str) -> str:
    """Break JSON *text* into indented lines; any text, however deep or broken."""
    if len(text) <= LINE_CHARACTERS_MAX:
        return text
    parts: list[str] = []
    depth, previous = 0, ""
    for piece in PIECE.findall(text):
        if piece in ("]", "}"):
            depth -= 1
            if previous not in ("[", "{"):
                parts.append(_line(depth))
        elif previous in ("[", "{", ","):
            parts.append(_line(depth))
        parts.append(": " if piece == ":" else piece)
        if piece in ("[", "{"):
            depth += 1
        previous = piece
    return "".join(parts)


def failures(text: str, *, clock: datetime, may_see: bool) -> list[Failure]:
    """
    Return the errors of a job, latest first.

    Messages and tracebacks can quote arguments: they are for those who may see
    payloads, and so is whatever is not of the shape that workers write.
    """
    try:
        entries = json.loads(text)
        if isinstance(entries, list):
            return [_failure(entry, clock, may_see) for entry in reversed(entries)]
    except (ValueError, RecursionError):
        pass
    raw = laid_out(redact_json(text)[:CHARACTERS_MAX])
    return [_failure({"kind": UNREADABLE, "traceback": raw}, clock, may_see)]


def without_secrets(text: str) -> str:
    """Return a message or a traceback with the values of secret names replaced."""
    return redact_text(text, get_settings().redact)


def _failure(entry: Any, clock: datetime, may_see: bool) -> Failure:
    if not isinstance(entry, dict):
        entry = {"kind": UNREADABLE, "traceback": _text(entry)}
    seconds = entry.get("ran_seconds")
    # What no worker wrote may say anything.
    is_length = isinstance(seconds, float) and 0 <= seconds < 1e12
    kind = _text(entry.get("kind"))
    said, traceback = _text(entry.get("message")), _text(entry.get("traceback"))
    log = "\n".join(human.log_lines(entry.get("log")))
    may_see_message = may_see or kind in BY_PEOPLE
    words = ("type", "attempt", "delivery", "worker", "by")
    return {
        **{each: _text(entry.get(each)) for each in words},
        "kind": kind,
        "message": without_secrets(said) if may_see_message else "",
        "traceback": without_secrets(traceback) if may_see else "",
        "log": without_secrets(log) if may_see else "",
        "at": _moment(entry.get("at"), clock),
        "ran": human.duration(seconds) if is_length else "",
        # There is more, for those who may see payloads.
        "is_hidden": bool((traceback or log) and not may_see)
        or bool(said and not may_see_message),
    }


def _moment(value: Any, clock: datetime) -> Any:
    """Return the time of an error as HTML, or as the text it is."""
    try:
        moment = parse_datetime(value)
        return moments.full(moment, clock) or _text(value)
    except (TypeError, ValueError, OverflowError):
        return _text(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _line(depth: int) -> str:
    return "\n" + "  " * min(max(depth, 0), INDENT_LEVELS_MAX)
