"""
Filters: what rows must be, for a value that somebody asks for.

A meaning makes a condition of a value. The lists of the admin and the arguments of the
commands look theirs up by the name of the filter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import Q, QuerySet, Value
from django.db.models.functions import Concat
from django.db.models.lookups import Exact

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
}


def narrow(
    rows: QuerySet[Any], meanings: Mapping[str, Meaning], asked: Mapping[str, Any]
) -> QuerySet[Any]:
    """Return those of *rows* that have all that is *asked*, by the names of filters."""
    for name, value in asked.items():
        rows = rows.filter(meanings[name](value))
    return rows
