"""
Fingerprint: what errors of the same kind have in common.

The class, the message without what differs from one job to the next, and the place in
the project's code. Two errors with the same three are one failure to whoever has to
fix it. Plain Python: executors, the admin and tests all ask this module.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Characters of a message that are looked at, and those that are kept of the result.
MESSAGE_LOOKED_AT = 2_000
MESSAGE_CHARACTERS_MAX = 300
CLASS_CHARACTERS_MAX = 255
PLACE_CHARACTERS_MAX = 255

# What differs, in the order in which it is replaced: what may hold the others first.
# Every expression goes through a text once: no two neighbours in it match the same.
DIFFERS = (
    (re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s'\"<>]+"), "<url>"),
    # In quotes; an apostrophe inside of a word is none.
    (re.compile(r"(?<!\w)'[^'\n]*'(?!\w)"), "<text>"),
    (re.compile(r'"[^"\n]*"'), "<text>"),
    (re.compile(r"`[^`\n]*`"), "<text>"),
    (re.compile(r"«[^»\n]*»|“[^”\n]*”"), "<text>"),
    (re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"), "<email>"),
    (
        re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
        "<uuid>",
    ),
    (re.compile(r"(?<![\w/>])(?:/[\w.@%+~:-]+){2,}/?"), "<path>"),
    (re.compile(r"\b[a-zA-Z]:\\[^\s'\"<>|]+"), "<path>"),
    (re.compile(r"\b0[xX][0-9a-fA-F]+\b"), "<hex>"),
    # Eight and more hexadecimal digits: of a hash, if there are both kinds of them.
    (
        re.compile(r"\b(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE),
        "<hex>",
    ),
    # A number, also a date, a time, an address or the number in a name.
    (re.compile(r"[0-9]+(?:[.,:_/-][0-9]+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)

FRAME = re.compile(r'^  File "([^"\n]+)", line \d+(?:, in ([^\n]+))?', re.MULTILINE)

# Code that is not the project's.
FOREIGN = re.compile(
    r"[/\\](?:site-packages|dist-packages|django_pgqueue|lib[/\\]python3[^/\\]*)[/\\]"
    r"|^<"
)

# Of the path of a place: enough to know it, and alike on every host.
PARTS_KEPT = 2


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What errors of the same kind have in common, and its name."""

    error_class: str
    message: str
    place: str

    @property
    def digest(self) -> str:
        """Return 32 hexadecimal digits that stand for it."""
        text = f"{self.error_class}\x00{self.message}\x00{self.place}"
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


def fingerprint(error: Mapping[str, Any]) -> Fingerprint:
    """
    Return the fingerprint of an entry of a job's errors.

    Args:
        error: As tasks/errors.py writes it, without secrets; or anything.
    """
    return Fingerprint(
        _text(error.get("type") or error.get("kind"))[:CLASS_CHARACTERS_MAX],
        normalised(_text(error.get("message"))),
        place(_text(error.get("traceback"))),
    )


def failed_entries(errors: str | None, reason: str | None) -> list[dict[str, Any]]:
    """
    Return the entries of a job's *errors*, as JSON, that are failures.

    At least one of a dead letter, which has a *reason*: a job died of its last failure.
    """
    failed = [
        entry
        for entry in _entries(errors)
        if isinstance(entry, dict) and entry.get("kind") in ("error", "worker_lost")
    ]
    return failed if failed or reason is None else [{"kind": reason}]


def normalised(message: str) -> str:
    """Return *message* without numbers, ids, quoted texts, paths and the like."""
    text = message[:MESSAGE_LOOKED_AT]
    for expression, instead in DIFFERS:
        text = expression.sub(instead, text)
    return text.strip()[:MESSAGE_CHARACTERS_MAX]


def place(traceback: str) -> str:
    """
    Return where it happened: "shop/tasks.py in send".

    The last frame of the project's own code, else the last of all; "": there is none.
    Lines are left out: they move with every release.
    """
    frames = FRAME.findall(traceback)
    own = [frame for frame in frames if not FOREIGN.search(frame[0])]
    if not frames:
        return ""
    path, function = (own or frames)[-1]
    parts = re.split(r"[/\\]", path)[-PARTS_KEPT:]
    where = f"{'/'.join(parts)} in {function}" if function else "/".join(parts)
    return where[:PLACE_CHARACTERS_MAX]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _entries(text: str | None) -> list[Any]:
    try:
        found = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []
