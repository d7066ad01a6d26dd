"""
First steps: what a call says when Django's own words would leave one alone with them.

Everybody meets them: a call from async code, one before the tables are made, and one
where DATABASES, such as that of tests, has no PostgreSQL.
"""

from __future__ import annotations

from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, connections
from django.utils.connection import ConnectionDoesNotExist

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import SchemaError, did_you_mean

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


def check_alias(key: str, alias: str) -> None:
    """
    Verify that DATABASES has an alias, without a connection.

    Args:
        key: That of PGQUEUE which names it.
        alias: What it names.

    Raises:
        SchemaError: It lacks the alias.
    """
    if alias not in connections.settings:
        known = list(connections.settings)
        near = did_you_mean(alias, known) or f" Known are: {', '.join(known)}."
        raise SchemaError(
            f"PGQUEUE[{key!r}] is {alias!r}, which is not in DATABASES.{near}"
        )


def check_engine(alias: str) -> None:
    """
    Verify that a database is PostgreSQL's, without a connection.

    Args:
        alias: One of DATABASES.

    Raises:
        SchemaError: It is of another kind.
    """
    vendor = connections[alias].vendor
    if vendor != "postgresql":
        raise SchemaError(
            f"Database {alias!r} is {vendor}; jobs need PostgreSQL. Set its ENGINE to "
            f"'django.db.backends.postgresql', or PGQUEUE['DATABASE'] to another alias."
        )


def _lacks_ours(error: Exception) -> bool:
    code = getattr(error.__cause__, "sqlstate", None)
    return code in NOT_THERE and "pgqueue_" in str(error)
