"""
Scratch: the place in which everything is measured, from its making to its end.

What a benchmark does to tables must not happen to real ones, not even by mistake.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg
from django.core.management.base import CommandError
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from psycopg import sql

from django_pgqueue.conf import get_settings
from django_pgqueue.management.bench import (
    yardstick,
    yardstick_log,
    yardstick_pull,
)
from django_pgqueue.management.bench.place import Place, isolated
from django_pgqueue.postgres.connect import connect
from django_pgqueue.postgres.cursor import Cursor, one_row

PREFIX = "pgqueue_bench_"

JOB_TABLES = (
    *("pgqueue_job", "pgqueue_archived_job", "pgqueue_dead_letter"),
    *("pgqueue_workflow", "pgqueue_step"),
)
LOG_TABLES = ("pgqueue_message", *yardstick_log.TABLES)
YARDSTICKS = (yardstick.TABLE, *yardstick_pull.TABLES)

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# By the kind of place. Locks: on the new name, and on template0, because CREATE
# DATABASE waits for nobody there, whereas anybody may be connected to template1.
CREATE = {
    "database": "CREATE DATABASE {name} TEMPLATE template0",
    "schema": "CREATE SCHEMA {name}",
}

# Locks: the database itself, or ACCESS EXCLUSIVE on what is in the schema, and nothing
# else. FORCE ends the sessions of workers that still hang on.
DROP = {
    "database": "DROP DATABASE IF EXISTS {name} WITH (FORCE)",
    "schema": "DROP SCHEMA IF EXISTS {name} CASCADE",
}

# Where unqualified names lead to, beside pg_catalog.
CURRENT = "SELECT current_database(), current_schema()"

# Locks: ACCESS EXCLUSIVE on each table, for the statement. Not DELETE: the rows of
# one run must not be dead rows in the next one.
EMPTY = "TRUNCATE {tables}"


class Scratch:
    """
    A database of the configured server, or a schema, with this package's migrations.

    Attributes:
        place: What and where it is.
        alias: The alias that leads to it while it is in use.
    """

    def __init__(self, place: Place, alias: str) -> None:
        self.place = place
        self.alias = alias
        self._others = 0

    def connect(self) -> yardstick.Connection:
        """Return a plain psycopg connection, in autocommit; only while in use."""
        return yardstick.as_plain(connect(self.alias, name="pgqueue bench"))

    def empty(self) -> None:
        """Remove all jobs and messages, and the rows of the yardsticks."""
        with connections[self.alias].cursor() as cursor:
            empty(cursor, [*JOB_TABLES, *LOG_TABLES, *YARDSTICKS])

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Lead the alias here until the block ends, from another scratch."""
        with isolated(self.place):
            yield

    @contextlib.contextmanager
    def another(self) -> Iterator[Scratch]:
        """Make one more of the same kind; it is in use only where it is said."""
        self._others += 1
        name = f"{self.place.name}_{self._others}"
        with _made(replace(self.place, name=name), self.alias) as another:
            yield another


@contextlib.contextmanager
def scratch_place(
    *, is_schema: bool, server: Mapping[str, Any] | None
) -> Iterator[Scratch]:
    """
    Make the place, lead the queue's aliases to it, and drop it however the block ends.

    Args:
        is_schema: A schema of the configured database instead of another database.
        server: Entries of DATABASES to use instead of the configured ones.

    Raises:
        CommandError: The server cannot be reached, or the role may not make one.
    """
    alias = get_settings().database
    engine = (server or connections.settings[alias])["ENGINE"]
    if server is None and connections[alias].vendor != "postgresql":
        raise CommandError(
            f"Database {alias!r} has the engine {engine!r}; jobs need PostgreSQL. "
            f"Without any DATABASES, the embedded server is measured."
        )
    place = Place(
        name=f"{PREFIX}{secrets.token_hex(6)}", is_schema=is_schema, server=server
    )
    with _made(place, alias) as made, made.in_use():
        yield made


@contextlib.contextmanager
def _made(place: Place, alias: str) -> Iterator[Scratch]:
    made = Scratch(place, alias)
    try:
        _create_beside(alias, place)
        with made.in_use():
            _migrate(made)
        yield made
    finally:
        with _undisturbed():
            _drop_beside(alias, place)


def _create_beside(alias: str, place: Place) -> None:
    role = "?"
    try:
        with _beside(alias, place) as connection:
            role = connection.info.user
            create(connection.cursor(), place)
    except psycopg.errors.InsufficientPrivilege as error:
        raise CommandError(_unpermitted(alias, role, place)) from error
    except psycopg.OperationalError as error:
        detail = str(error).strip()
        raise CommandError(f"Database {alias!r} cannot be used: {detail}") from error


def _unpermitted(alias: str, role: str, place: Place) -> str:
    if place.is_schema:
        name = connections.settings[alias]["NAME"]
        return (
            f"The benchmark makes a schema of its own, and role {role!r} may make none "
            f"in database {name!r}. Run GRANT CREATE ON DATABASE {name} TO {role}."
        )
    return (
        f"The benchmark makes a database of its own, and role {role!r} of database "
        f"{alias!r} may not. Run ALTER ROLE {role} CREATEDB, or let {alias!r} lead to "
        f"a server where it may, or measure in a schema of this database with --schema."
    )


def _migrate(made: Scratch) -> None:
    place = made.place
    with connections[made.alias].cursor() as cursor:
        database, schema = current_place(cursor)
    found = schema if place.is_schema else database
    if found != place.name:
        raise CommandError(
            f"Database {made.alias!r} led to {place.kind} {found!r} instead of "
            f"{place.name!r}: its OPTIONS, or a pooler, choose it. Nothing was "
            f"measured."
        )
    # Not the command migrate: its signals would run what the project does after it.
    executor = MigrationExecutor(connections[made.alias])
    nodes = executor.loader.graph.leaf_nodes()
    executor.migrate([node for node in nodes if node[0] == "pgqueue"])
    with made.connect() as connection:
        yardstick.create(connection)
        yardstick_log.create(connection)
        yardstick_pull.create(connection)


def _drop_beside(alias: str, place: Place) -> None:
    # It was never made if the server could not be reached; that error says so.
    with (
        contextlib.suppress(psycopg.OperationalError),
        _beside(alias, place) as connection,
    ):
        drop(connection.cursor(), place)


@contextlib.contextmanager
def _beside(alias: str, place: Place) -> Iterator[yardstick.Connection]:
    """Connect to where the alias leads now, on the server of *place*."""
    if place.server is None:
        with connect(alias, name="pgqueue bench") as connection:
            yield connection
        return
    # The alias itself leads nowhere before the first place is in use.
    told = Place(name=place.server["NAME"], server=place.server)
    with isolated(told), connect(alias, name="pgqueue bench") as connection:
        yield connection


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Let an impatient second Ctrl+C not leave anything behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in END_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def create(cursor: Cursor, place: Place) -> None:
    """
    Make *place*, empty, beside where *cursor* leads.

    Args:
        cursor: In autocommit.
        place: Its name begins with PREFIX.

    Raises:
        psycopg.errors.InsufficientPrivilege: The role has no CREATEDB, or no CREATE on
            the database.
    """
    cursor.execute(sql.SQL(CREATE[place.kind]).format(name=_checked(place.name)))


def drop(cursor: Cursor, place: Place) -> None:
    """Remove *place*, whoever is connected to it; absent is fine."""
    cursor.execute(sql.SQL(DROP[place.kind]).format(name=_checked(place.name)))


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


def _checked(name: str) -> sql.Identifier:
    if not name.startswith(PREFIX):
        raise ValueError(f"{name!r} is no scratch place: it lacks {PREFIX!r}.")
    return sql.Identifier(name)
