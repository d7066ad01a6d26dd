"""Note: something to know before one looks at a page, or does something there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence above the page, and a command that helps."""

    text: str
    command: str = ""
    is_warning: bool = True
