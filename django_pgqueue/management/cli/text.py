"""
Text: data of jobs as a terminal may show it.

Widths are columns of a terminal: 世 takes two of them, a combining accent none.
"""

from __future__ import annotations

import unicodedata
from typing import Any

from django_pgqueue.operators.human import shown

ELLIPSIS = "…"


def shown_lines(text: str) -> list[str]:
    """Return the lines of *text*, each printable; tabs become four spaces."""
    return [shown(line.replace("\t", "    ")) for line in text.split("\n")]


def by_whom(row: Any) -> str:
    """Return who has paused *row* and why, as " by ada: rebuilt"; "" if nobody said."""
    by = f" by {shown(row.paused_by)}" if row.paused_by else ""
    return by + (f": {shown(row.pause_reason)}" if row.pause_reason else "")


def width(text: str) -> int:
    """Return how many columns of a terminal the printable *text* takes."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def cut(text: str, columns: int) -> str:
    """Return *text*, shortened to *columns*, an ellipsis included."""
    if width(text) <= columns:
        return text
    kept, left = [], columns - 1
    for char in text:
        left -= _char_width(char)
        if left < 0:
            break
        kept.append(char)
    return "".join(kept) + ELLIPSIS if columns > 0 else ""


def cut_in_middle(text: str, columns: int) -> str:
    """Return *text*, shortened as by cut(), but in its middle."""
    if width(text) <= columns:
        return text
    end = ""
    for char in reversed(text):
        if width(end) + _char_width(char) > columns // 2:
            break
        end = char + end
    return cut(text, columns - width(end)) + end


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """Return *text* with spaces up to *columns*, behind it or before it."""
    spaces = " " * (columns - width(text))
    return spaces + text if right else text + spaces


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
