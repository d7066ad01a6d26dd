"""Finding: one thing that the doctor looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["ok", "warning", "error"]

# Least to worst.
SEVERITIES: tuple[Severity, ...] = ("ok", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    One thing that was looked at.

    Attributes:
        check: What was looked at, in one word that never changes: for scripts.
        severity: "error": jobs do not run, or soon will not. "warning": somebody
            should look. "ok": as it should be.
        what: The finding, in a sentence.
        value: What was measured, where that is a number or a list.
        limit: What the value is held against.
        way_out: What to do; empty where all is well.
    """

    check: str
    severity: Severity
    what: str
    value: object = None
    limit: object = None
    way_out: str = ""
