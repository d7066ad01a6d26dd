"""
Errors: what went wrong in Spark, in the words of whoever noticed it.

An error of ours that was raised in a process of Spark's comes back inside of one of
Spark's, behind two traces; one of Java's comes with a trace of its own.
"""

from __future__ import annotations

import re
from typing import Any

# What Python prints last of an error of ours.
OURS = re.compile(
    r"^django_pgqueue\.(?:\w+\.)*(?P<name>\w+): (?P<text>.+?)"
    r"(?=\n\s*(?:SQLSTATE|at )|\Z)",
    re.MULTILINE | re.DOTALL,
)

# Errors that one is the cause of.
CAUSES_MAX = 10


def error_text(error: BaseException) -> str:
    """Return what *error* says, with the name of its class."""
    ours = OURS.search(str(error))
    if ours is not None:
        return f"{ours['name']}: {' '.join(ours['text'].split())}"
    java = getattr(error, "java_exception", None)
    if java is not None:
        return f"{type(error).__name__}: {'; '.join(_causes(java))}"
    return f"{type(error).__name__}: {error}"


def _causes(java: Any) -> list[str]:
    """Return the first line of an error of Java's, and of each of its causes."""
    lines: dict[str, None] = {}
    for _ in range(CAUSES_MAX):
        if java is None:
            break
        lines[str(java.toString()).strip().partition("\n")[0]] = None
        java = java.getCause()
    return list(lines)
