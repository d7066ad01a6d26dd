"""
Groups: the latest dead letters by task, reason and class of error.

What an operator asks first is whether a thousand failures are one failure. It is
answered from the latest dead letters, a fixed number of them: a group over all would
read the whole table.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet, Value
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Coalesce, Left, Now

# Dead letters that are grouped, and groups that are shown.
GROUPED_ROWS_MAX = 1_000
GROUPS_MAX = 100

ERROR_CHARACTERS_MAX = 200

# Shown for a dead letter without an error.
NONE = "-"


@dataclass(frozen=True, slots=True)
class Group:
    """Dead letters that are alike."""

    task: str
    reason: str
    error: str
    count: int
    latest: datetime
    clock: datetime


def groups(letters: QuerySet[Any]) -> tuple[list[Group], int]:
    """
    Return the groups of the latest *letters*, the largest first.

    Also how many dead letters were looked at: GROUPED_ROWS_MAX when there are more.
    """
    rows = letters.order_by("-finished_at", "-id").values_list(
        "task", "reason", error_class(), "finished_at", Now()
    )[:GROUPED_ROWS_MAX]
    counts: Counter[tuple[str, str, str]] = Counter()
    latest: dict[tuple[str, str, str], tuple[datetime, datetime]] = {}
    for task, reason, kind, finished_at, clock in rows:
        key = (task, reason, kind)
        counts[key] += 1
        latest.setdefault(key, (finished_at, clock))
    found = [
        Group(*key, count, *latest[key])
        for key, count in counts.most_common(GROUPS_MAX)
    ]
    return found, counts.total()


def error_class() -> Coalesce:
    """Return the class of the last error, or what kind of entry it is, or NONE."""
    last = KeyTransform(-1, "errors")
    named = Coalesce(KeyTextTransform("type", last), KeyTextTransform("kind", last))
    return Coalesce(Left(named, ERROR_CHARACTERS_MAX), Value(NONE))
