"""
First steps: what a call says when Django's own words would leave one alone with them.

Everybody meets two of them: a call from async code, and one before the tables are made.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.core.exceptions import SynchronousOnlyOperation
from django.db import ProgrammingError

from django_pgqueue.exceptions import SchemaError

P = ParamSpec("P")
R = TypeVar("R")

# PostgreSQL's codes for a table, a column and a function that is not there.
NOT_THERE = frozenset({"42P01", "42703", "42883"})


def with_way_out(
    call: str, async_call: str
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """
    Let a function that writes to the queue name the way out of two mistakes.

    Args:
        call: What users call it.
        async_call: What they call from async code.
    """

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def tried(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except SynchronousOnlyOperation:
                raise SynchronousOnlyOperation(
                    f"{call} waits for the database, which async code must not do: "
                    f"say await {async_call}."
                ) from None
            except ProgrammingError as error:
                if not _lacks_ours(error):
                    raise
                first = str(error).strip().split("\n")[0]
                raise SchemaError(
                    f"The database of the jobs lacks what {call} needs ({first}): run "
                    f"python manage.py migrate."
                ) from error

        return tried

    return wrap


def _lacks_ours(error: ProgrammingError) -> bool:
    code = getattr(error.__cause__, "sqlstate", None)
    return code in NOT_THERE and "pgqueue_" in str(error)
