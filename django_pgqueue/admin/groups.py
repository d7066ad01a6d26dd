"""
Groups: which dead letters are alike.

What an operator asks first is whether a thousand failures are one failure. By task,
reason and class of error; or by the fingerprint of the last error that counts, without
its secrets, just as the pipeline job failures makes it. No column holds either. So they
are answered from the latest dead letters, a fixed number of them: a group over all
would read the whole table.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db.models import F, Func, JSONField, QuerySet, TextField, Value
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Coalesce, Left, Now

from django_pgqueue.conf import get_settings
from django_pgqueue.redaction.values import redact

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


if TYPE_CHECKING:
    from django_pgqueue.spark.fingerprint import Fingerprint

# Dead letters that are gone through for one failure, the latest.
LETTERS_MAX = 1_000

# Characters of an error; as tasks/errors.py shortens it, there are fewer.
ENTRY_CHARACTERS_MAX = 100_000


def kind_of(errors: str | None, reason: str) -> Fingerprint | None:
    """
    Return the fingerprint of what a dead letter died of.

    Args:
        errors: The column as text, all of it or what last_failed() made of it.
        reason: Why the job gave up; that of one without an error.
    """
    from django_pgqueue.spark.fingerprint import fingerprint
    from django_pgqueue.spark.jobs.failures import failed_entries

    entry = failed_entries(errors, reason)[-1]
    (shown,) = redact([entry], get_settings().redact)
    return fingerprint(shown) if isinstance(shown, dict) else None


def letters_of(letters: QuerySet[Any], asked: str) -> list[int]:
    """Return those of the latest LETTERS_MAX *letters* whose fingerprint is *asked*."""
    latest = letters.order_by("-finished_at", "-id")
    rows = latest.values_list("pk", "reason", last_failed())[:LETTERS_MAX]
    return [
        key
        for key, reason, errors in rows
        if (kind := kind_of(errors, reason)) is not None and kind.digest == asked
    ]


def last_failed() -> Left:
    """Return the last error that counts, in a list of its own, as text."""
    failed = Func(
        F("errors"),
        function="jsonb_path_query_array",
        template="""jsonb_build_array(%(function)s(%(expressions)s, '$[*] ? """
        """(@.kind == "error" || @.kind == "worker_lost")') -> -1)""",
        output_field=JSONField(),
    )
    return Left(Cast(failed, TextField()), ENTRY_CHARACTERS_MAX)
