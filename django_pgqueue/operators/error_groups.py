"""
Error groups: which failures are alike.

What an operator asks first is whether a thousand failures are one failure. By task,
reason, class of the last error and place in the project's code; or by the fingerprint
of the last error that counts, without its secrets, just as the pipeline job failures
makes it. No column holds any of these. So they are answered from the latest rows, a
fixed number of them: a group over all would read the whole table.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import F, Func, JSONField, QuerySet, TextField, Value
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Coalesce, Left, Now

from django_pgqueue.conf import get_settings
from django_pgqueue.models import DeadLetter
from django_pgqueue.operators.human import in_utc
from django_pgqueue.redaction.fingerprint import (
    Fingerprint,
    failed_entries,
    fingerprint,
    place,
)
from django_pgqueue.redaction.values import redact

# Rows that are grouped, and groups that are shown.
GROUPED_ROWS_MAX = 1_000
GROUPS_MAX = 100

# Dead letters that are gone through for one failure, the latest.
LETTERS_MAX = 1_000

# Counts of a trend: equal parts of the time from the first of all rows until now.
TREND_PARTS = 12

ERROR_CHARACTERS_MAX = 200

# Characters of an error; as tasks/errors.py shortens it, there are fewer.
ENTRY_CHARACTERS_MAX = 100_000

# Shown for a row without an error, and of one without a place.
NONE = "-"


class Alike(NamedTuple):
    """What the rows of a group have in common."""

    task: str
    reason: str  # Of dead letters; "": of jobs.
    error: str  # The class of the last error, or what kind of entry it is, or NONE.
    place: str  # As redaction/fingerprint.py; NONE: no traceback says one.


@dataclass(frozen=True, slots=True)
class Group:
    """
    Rows that failed alike.

    Attributes:
        alike: What they have in common.
        count: How many there are.
        first: When the first of them failed.
        latest: When the latest did.
        clock: The database's time; all three in UTC.
        sample: The id of the latest.
        trend: How many failed in each of TREND_PARTS parts of the time that all groups
            together took until now, the earliest first.
    """

    alike: Alike
    count: int
    first: datetime
    latest: datetime
    clock: datetime
    sample: int
    trend: tuple[int, ...]


class _Failed(NamedTuple):
    id: int
    alike: Alike
    at: datetime
    clock: datetime


def groups(
    rows: QuerySet[Any], most: int = GROUPED_ROWS_MAX
) -> tuple[list[Group], int]:
    """
    Return the groups of the latest *rows*, the largest first.

    Also how many rows were looked at: *most* when there are more.

    Args:
        rows: Dead letters, by the time they gave up; or jobs, by their ids.
        most: How many to look at.
    """
    read = list(_failed(rows, most))
    if not read:
        return [], 0
    clock = read[0].clock
    start = min(row.at for row in read)
    part = (clock - start) / TREND_PARTS
    ends = [start + part * number for number in range(1, TREND_PARTS)]
    found: defaultdict[Alike, list[_Failed]] = defaultdict(list)
    for row in read:
        found[row.alike].append(row)
    largest = sorted(found.values(), key=len, reverse=True)[:GROUPS_MAX]
    return [_group(members, ends) for members in largest], len(read)


def _group(members: list[_Failed], ends: list[datetime]) -> Group:
    trend = [0] * TREND_PARTS
    for row in members:
        trend[bisect_right(ends, row.at)] += 1
    latest = max(members, key=lambda row: (row.at, row.id))
    return Group(
        latest.alike,
        count=len(members),
        first=min(row.at for row in members),
        latest=latest.at,
        clock=latest.clock,
        sample=latest.id,
        trend=tuple(trend),
    )


def at_place(rows: QuerySet[Any], asked: str) -> list[int]:
    """Return those of the latest GROUPED_ROWS_MAX *rows* that failed at a place."""
    read = _failed(rows, GROUPED_ROWS_MAX)
    return [row.id for row in read if row.alike.place == asked]


def _failed(rows: QuerySet[Any], most: int) -> Iterator[_Failed]:
    is_dead = rows.model is DeadLetter
    latest = rows.order_by("-finished_at", "-id") if is_dead else rows.order_by("-id")
    asked = latest.values_list(
        "id",
        "task",
        F("reason") if is_dead else Value(""),
        error_class(),
        last_failed(),
        "finished_at" if is_dead else "enqueued_at",
        Now(),
    )
    for key, task, reason, kind, errors, at, clock in asked[:most]:
        entry = next(iter(failed_entries(errors, None)), {})
        traceback = entry.get("traceback")
        where = place(traceback) if isinstance(traceback, str) else ""
        alike = Alike(task, reason, kind, where or NONE)
        said = None if is_dead else entry.get("at")
        yield _Failed(key, alike, _moment(said, at), in_utc(clock))


def _moment(text: object, otherwise: datetime) -> datetime:
    """Return when it happened, in UTC; *otherwise* where the entry does not say."""
    try:
        return in_utc(datetime.fromisoformat(text if isinstance(text, str) else ""))
    except (ValueError, OverflowError):
        return in_utc(otherwise)


def error_class() -> Coalesce:
    """Return the class of the last error, or what kind of entry it is, or NONE."""
    last = KeyTransform(-1, "errors")
    named = Coalesce(KeyTextTransform("type", last), KeyTextTransform("kind", last))
    return Coalesce(Left(named, ERROR_CHARACTERS_MAX), Value(NONE))


def kind_of(errors: str | None, reason: str) -> Fingerprint | None:
    """
    Return the fingerprint of what a dead letter died of.

    Args:
        errors: The column as text, all of it or what last_failed() made of it.
        reason: Why the job gave up; that of one without an error.
    """
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
