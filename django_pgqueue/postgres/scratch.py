"""
Scratch: a database that is made for a while, beside the configured one.

What a benchmark does to tables must not happen to real ones, not even by mistake.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from psycopg import sql

PREFIX = "pgqueue_bench_"

# Locks: on template0 and the new name only. template0, because CREATE DATABASE waits
# for nobody there, whereas anybody may be connected to template1.
CREATE = "CREATE DATABASE {name} TEMPLATE template0"

# Locks: the database itself. FORCE ends the sessions of workers that still hang on.
DROP = "DROP DATABASE IF EXISTS {name} WITH (FORCE)"

CURRENT = "SELECT current_database()"

# Locks: ACCESS EXCLUSIVE on each table, for the statement. Not DELETE: the rows of
# one run must not be dead rows in the next one.
EMPTY = "TRUNCATE {tables}"


def new_name() -> str:
    """Return a name that no database has."""
    return f"{PREFIX}{secrets.token_hex(6)}"


def create_database(cursor: Any, name: str) -> None:
    """
    Make the empty database *name* on the cursor's server.

    Args:
        cursor: In autocommit; connected to any database of the server.
        name: From new_name().

    Raises:
        psycopg.errors.InsufficientPrivilege: The role has no CREATEDB.
    """
    cursor.execute(sql.SQL(CREATE).format(name=sql.Identifier(_checked(name))))


def drop_database(cursor: Any, name: str) -> None:
    """Remove the database *name*, whoever is connected to it; absent is fine."""
    cursor.execute(sql.SQL(DROP).format(name=sql.Identifier(_checked(name))))


def current_database(cursor: Any) -> str:
    """Return the name of the database that the cursor is connected to."""
    cursor.execute(CURRENT)
    name: str = cursor.fetchone()[0]
    return name


def empty(cursor: Any, tables: Sequence[str]) -> None:
    """
    Remove all rows of *tables*, in a scratch database and nowhere else.

    Raises:
        ValueError: The cursor is connected to a database of another name.
    """
    _checked(current_database(cursor))
    names = sql.SQL(", ").join(sql.Identifier(table) for table in tables)
    cursor.execute(sql.SQL(EMPTY).format(tables=names))


def _checked(name: str) -> str:
    if not name.startswith(PREFIX):
        raise ValueError(f"{name!r} is no scratch database: it lacks {PREFIX!r}.")
    return name
