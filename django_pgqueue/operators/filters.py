"""
Filters: what rows must be, for a value that somebody asks for.

A meaning makes a condition of a value. The lists of the admin and the arguments of the
commands look theirs up by the name of the filter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet, Value
from django.db.models.functions import Concat, Now
from django.db.models.lookups import EndsWith, Exact

from django_pgqueue.operators.error_groups import error_class

Meaning = Callable[[Any], Q]


def equal(column: str) -> Meaning:
    """The *column* has the value."""
    return lambda value: Q(**{column: value})


def part_of(*columns: str) -> Meaning:
    """One of the *columns* contains the value, in letters of either case."""

    def condition(value: Any) -> Q:
        tests = [Q(**{f"{column}__icontains": value}) for column in columns]
        return Q(*tests, _connector=Q.OR)

    return condition


def id_or(meaning: Meaning) -> Meaning:
    """The row has the value for its id, if that is written as ids are."""
    # A number beyond bigint is no error: Django knows that no row can have it.
    return lambda text: Q(pk=int(text)) if is_number(text) else meaning(text)


def of_error(name: str) -> Q:
    """The row's last error is of a class: by its whole name, or without its module."""
    condition = Q(Exact(error_class(), Value(name)))
    if "." not in name:
        condition |= Q(EndsWith(error_class(), Value(f".{name}")))
    return condition


def ended(lookup: str) -> Meaning:
    """The row's job ended before or after a time, or so long ago; by *lookup*."""

    def condition(value: datetime | timedelta) -> Q:
        moment = Now() - value if isinstance(value, timedelta) else value
        return Q(**{f"finished_at__{lookup}": moment})

    return condition


def is_number(text: str) -> bool:
    """Return whether *text* is written as ids are."""
    return text.isascii() and text.isdecimal()


# Of a job, wherever its row is; without the indexes of queues and tags. Rows are found
# by windows of a list's own order, and an index besides led to plans that read it
# whole, window by window: `queue || ''` it does not serve, nor headers @> for
# headers -> 'tags'.
JOBS: Mapping[str, Meaning] = {
    "q": id_or(part_of("task")),
    "queue": lambda name: Q(Exact(Concat("queue", Value("")), name)),
    "task": equal("task"),
    "tag": lambda tag: Q(headers__contains={"tags": [tag]}),
    "state": equal("state"),
    "states": equal("state__in"),
    "reason": equal("reason"),
    "error": lambda name: Q(Exact(error_class(), Value(name))),
    "error_named": of_error,
    "since": ended("gte"),
    "older": ended("lte"),
}

# Those of them whose values are times.
TIMES = ("since", "until", "older")


def narrow(
    rows: QuerySet[Any], meanings: Mapping[str, Meaning], asked: Mapping[str, Any]
) -> QuerySet[Any]:
    """Return those of *rows* that have all that is *asked*, by the names of filters."""
    for name, value in asked.items():
        rows = rows.filter(meanings[name](value))
    return rows
