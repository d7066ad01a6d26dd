"""
First steps: what a call says when Django's own words would leave one alone with them.

Everybody meets them: a call from async code, one before the tables are made, and one
where DATABASES, such as that of tests, has no PostgreSQL.
"""

from __future__ import annotations

from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError
from django.utils.connection import ConnectionDoesNotExist

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import SchemaError
from django_pgqueue.postgres.engine import check_alias, check_engine

# What Django raises for these.
FIRST_ERRORS = (SynchronousOnlyOperation, DatabaseError, ConnectionDoesNotExist)

# PostgreSQL's codes for a table, a column and a function that is not there.
NOT_THERE = frozenset({"42P01", "42703", "42883"})


def name_way_out(error: Exception, call: str, async_call: str) -> None:
    """
    Raise an error that names the way out, if this is one of these mistakes.

    Args:
        error: What writing to the queue has raised.
        call: What users call for that.
        async_call: What they call from async code.
    """
    if isinstance(error, SynchronousOnlyOperation):
        raise SynchronousOnlyOperation(
            f"{call} waits for the database, which async code must not do: "
            f"say await {async_call}."
        ) from None
    alias = get_settings().database
    check_alias("DATABASE", alias)
    check_engine(alias)
    if _lacks_ours(error):
        first = str(error).strip().split("\n")[0]
        raise SchemaError(
            f"The database of the jobs lacks what {call} needs ({first}): run "
            f"python manage.py migrate."
        ) from error


def _lacks_ours(error: Exception) -> bool:
    code = getattr(error.__cause__, "sqlstate", None)
    return code in NOT_THERE and "pgqueue_" in str(error)
