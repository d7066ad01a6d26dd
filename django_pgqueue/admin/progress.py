"""Progress: how far a job said that it is."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """Done of total, as a bar shows it."""

    done: float
    total: float
    text: str


def read_progress(text: str | None) -> Progress | None:
    """
    Return the progress in a column's JSON *text*.

    None: there is none, or it is not what a task's context writes; then it is shown as
    the payload that it is.
    """
    try:
        value = json.loads(text or "null")
        done, total = value["done"], value["total"]
        is_bar = 0 <= done <= total and 0 < total < float("inf")
    except (ValueError, RecursionError, TypeError, LookupError):
        return None
    if not is_bar:
        return None
    return Progress(done, total, f"{done:,} / {total:,} ({done / total:.0%})")
