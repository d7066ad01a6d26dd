"""
Scratch: a database or a schema that is made for a while, beside the configured one.

What a benchmark does to tables must not happen to real ones, not even by mistake.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from psycopg import sql

from django_pgqueue.postgres.cursor import Cursor, one_row

PREFIX = "pgqueue_bench_"

# Locks: on template0 and the new name only. template0, because CREATE DATABASE waits
# for nobody there, whereas anybody may be connected to template1.
CREATE = "CREATE DATABASE {name} TEMPLATE template0"

# Locks: the database itself. FORCE ends the sessions of workers that still hang on.
DROP = "DROP DATABASE IF EXISTS {name} WITH (FORCE)"

# Locks: on the new name only.
CREATE_SCHEMA = "CREATE SCHEMA {name}"

# Locks: ACCESS EXCLUSIVE on what is in the schema, and on nothing else.
DROP_SCHEMA = "DROP SCHEMA IF EXISTS {name} CASCADE"

# Where unqualified names lead to, beside pg_catalog.
CURRENT = "SELECT current_database(), current_schema()"

# Locks: ACCESS EXCLUSIVE on each table, for the statement. Not DELETE: the rows of
# one run must not be dead rows in the next one.
EMPTY = "TRUNCATE {tables}"


def new_name() -> str:
    """Return a name that no database and no schema has."""
    return f"{PREFIX}{secrets.token_hex(6)}"


def create_database(cursor: Cursor, name: str) -> None:
    """
    Make the empty database *name* on the cursor's server.

    Args:
        cursor: In autocommit; connected to any database of the server.
        name: From new_name().

    Raises:
        psycopg.errors.InsufficientPrivilege: The role has no CREATEDB.
    """
    cursor.execute(sql.SQL(CREATE).format(name=sql.Identifier(_checked(name))))


def drop_database(cursor: Cursor, name: str) -> None:
    """Remove the database *name*, whoever is connected to it; absent is fine."""
    cursor.execute(sql.SQL(DROP).format(name=sql.Identifier(_checked(name))))


def create_schema(cursor: Cursor, name: str) -> None:
    """
    Make the empty schema *name* in the cursor's database.

    Raises:
        psycopg.errors.InsufficientPrivilege: The role has no CREATE on the database.
    """
    cursor.execute(sql.SQL(CREATE_SCHEMA).format(name=sql.Identifier(_checked(name))))


def drop_schema(cursor: Cursor, name: str) -> None:
    """Remove the schema *name* and what is in it; absent is fine."""
    cursor.execute(sql.SQL(DROP_SCHEMA).format(name=sql.Identifier(_checked(name))))


def current_place(cursor: Cursor) -> tuple[str, str | None]:
    """Return the database and the schema that unqualified names lead to."""
    cursor.execute(CURRENT)
    database, schema = one_row(cursor)
    return database, schema


def empty(cursor: Cursor, tables: Sequence[str]) -> None:
    """
    Remove all rows of *tables*, in a scratch place and nowhere else.

    Raises:
        ValueError: The cursor leads to a database and a schema of other names.
    """
    refuse_others(cursor)
    names = sql.SQL(", ").join(sql.Identifier(table) for table in tables)
    cursor.execute(sql.SQL(EMPTY).format(tables=names))


def refuse_others(cursor: Cursor) -> None:
    """
    Make sure that the cursor leads to a scratch place.

    Raises:
        ValueError: To a database and a schema of other names.
    """
    database, schema = current_place(cursor)
    if not (schema or "").startswith(PREFIX):
        _checked(database)


def _checked(name: str) -> str:
    if not name.startswith(PREFIX):
        raise ValueError(f"{name!r} is no scratch place: it lacks {PREFIX!r}.")
    return name
