"""
Payload: what a job carries, as text that is safe and readable on a page.

PostgreSQL stores JSON that Python cannot read (1e5000, three thousand brackets), and
such a job is just the one that somebody wants to look at. So the columns are fetched
as text and laid out as text; nothing here is parsed into Python values, except the
errors, which our own workers write.
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

from django_pgqueue.admin import moments

VIEW_PAYLOAD = "pgqueue.view_payload"

# Characters of one column that a page shows.
CHARACTERS_MAX = 100_000
# 100 errors of a message and a traceback each, as tasks/perform.py shortens them.
ERRORS_CHARACTERS_MAX = 4_000_000

# Text up to this length stays on its line.
LINE_CHARACTERS_MAX = 72
INDENT_LEVELS_MAX = 24

# The kind shown for an entry that no worker wrote.
UNREADABLE = "unreadable"

# A string (perhaps cut off), a bracket or separator, or a number or word.
PIECE = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{},:]|[^\s"\[\]{},:]+', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Payload:
    """One column of JSON, laid out."""

    label: str | Promise
    text: str
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """One entry of a job's errors: an attempt that failed, or a worker that died."""

    kind: str
    type: str
    message: str
    traceback: str
    attempt: str
    delivery: str
    worker: str
    at: Any  # HTML or text.
    ran: str


def may_see(request: HttpRequest) -> bool:
    """Return whether the user may see arguments, results and tracebacks."""
    return request.user.has_perm(VIEW_PAYLOAD)


def as_text(column: str, characters_max: int = CHARACTERS_MAX) -> Left:
    """Return the JSON in *column* as text; one character too much tells it was cut."""
    return Left(Cast(column, TextField()), characters_max + 1)


def payload(label: str | Promise, text: str) -> Payload:
    """Return the text that as_text() fetched, laid out and cut to its limit."""
    return Payload(
        label, laid_out(text[:CHARACTERS_MAX]), is_cut=len(text) > CHARACTERS_MAX
    )


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

    Whatever is not of the shape that workers write is shown as it is, to those who
    may see payloads.
    """
    try:
        entries = json.loads(text)
        if isinstance(entries, list):
            return [_failure(entry, clock, may_see) for entry in reversed(entries)]
    except (ValueError, RecursionError):
        pass
    raw = {"kind": UNREADABLE, "traceback": laid_out(text[:CHARACTERS_MAX])}
    return [_failure(raw, clock, may_see)]


def last_error(type_name: str | None, kind: str | None, message: str | None) -> str:
    """Return an error in one line: its class without the module, and what it said."""
    # The first line: some libraries put a whole page into a message.
    said = next(iter((message or "").splitlines()), "")
    return ": ".join(_present([(type_name or kind or "").rpartition(".")[2], said]))


def _failure(entry: Any, clock: datetime, may_see: bool) -> Failure:
    if not isinstance(entry, dict):
        entry = {"kind": UNREADABLE, "traceback": _text(entry)}
    seconds = entry.get("ran_seconds")
    return Failure(
        kind=_text(entry.get("kind")),
        type=_text(entry.get("type")),
        message=_text(entry.get("message")),
        traceback=_text(entry.get("traceback")) if may_see else "",
        attempt=_text(entry.get("attempt")),
        delivery=_text(entry.get("delivery")),
        worker=_text(entry.get("worker")),
        at=_moment(entry.get("at"), clock),
        ran=f"{seconds:.3f} s" if isinstance(seconds, float) else "",
    )


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


def _present(parts: Iterable[str]) -> list[str]:
    return [part for part in parts if part]
