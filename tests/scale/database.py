"""A database of its own, migrated and then filled: rows stay from test to test."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

from django.core.management import call_command
from django.db import connections

from django_pgqueue.postgres.connect import connect


@contextlib.contextmanager
def own_database(alias: str) -> Iterator[str]:
    """
    Make a database on the server of "default" and lead *alias* to it meanwhile.

    Args:
        alias: A new one.
    """
    connection = connections["default"]
    name = f"{connection.settings_dict['NAME']}_{uuid.uuid4().hex[:8]}"
    with connection._nodb_cursor() as cursor:
        cursor.execute(f'CREATE DATABASE "{name}"')
    connections.databases[alias] = {**connection.settings_dict, "NAME": name}
    try:
        call_command("migrate", "pgqueue", database=alias, verbosity=0)
        yield name
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.databases[alias]
        with connection._nodb_cursor() as cursor:
            cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextlib.contextmanager
def cursor_of_own_database(alias: str) -> Iterator[Any]:
    """Make a database as own_database(), and lend a cursor on it."""
    with own_database(alias), own_cursor(alias) as cursor:
        yield cursor


@contextlib.contextmanager
def own_cursor(alias: str) -> Iterator[Any]:
    """A psycopg cursor in autocommit on *alias*."""
    with connect(alias, name="tests: scale") as connection:
        yield connection.cursor()
