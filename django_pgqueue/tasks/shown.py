"""Shown: a value as an error message shows it."""

from __future__ import annotations

# Characters of a value in an error.
SHOWN_MAX = 80


def shown(value: object) -> str:
    """Return *value* as text; its own __repr__ may be long, or raise."""
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__qualname__}"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
