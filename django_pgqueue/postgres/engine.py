"""Engine: whether the database that jobs shall be in is known, and is PostgreSQL's."""

from __future__ import annotations

from django.db import connections

from django_pgqueue.exceptions import SchemaError, did_you_mean


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
