"""Scratch: the database in which everything is measured, from its making to its end."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

import psycopg
from django.core.management.base import CommandError
from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from django_pgqueue.conf import get_settings
from django_pgqueue.management.bench.isolation import isolated
from django_pgqueue.postgres import scratch, yardstick
from django_pgqueue.postgres.connect import connect

JOB_TABLES = ("pgqueue_job", "pgqueue_archived_job", "pgqueue_dead_letter")


class Scratch:
    """
    A database of the configured server, with the migrations of this package.

    Attributes:
        name: Its name.
        alias: The alias that leads to it while it exists.
    """

    def __init__(self, name: str, alias: str) -> None:
        self.name = name
        self.alias = alias

    def connect(self) -> yardstick.Connection:
        """Return a plain psycopg connection, in autocommit."""
        return yardstick.as_plain(connect(self.alias, name="pgqueue bench"))

    def empty(self) -> None:
        """Remove all jobs, and the rows of the yardstick."""
        with connections[self.alias].cursor() as cursor:
            scratch.empty(cursor, [*JOB_TABLES, yardstick.TABLE])


@contextlib.contextmanager
def scratch_database() -> Iterator[Scratch]:
    """
    Make the database, and drop it however the block ends.

    Raises:
        CommandError: The server cannot be reached, or the role may not create one.
    """
    alias, name = get_settings().database, scratch.new_name()
    if connections[alias].vendor != "postgresql":
        raise CommandError(
            f"Database {alias!r} is {connections[alias].vendor}; jobs need PostgreSQL."
        )
    try:
        _create(alias, name)
        with isolated(name):
            made = Scratch(name, alias)
            _migrate(made)
            yield made
    finally:
        with _undisturbed():
            _drop(alias, name)


def _create(alias: str, name: str) -> None:
    try:
        with connect(alias, name="pgqueue bench") as connection:
            role = connection.info.user
            scratch.create_database(connection.cursor(), name)
    except psycopg.errors.InsufficientPrivilege as error:
        raise CommandError(
            f"The benchmark makes a database of its own, and role {role!r} of database "
            f"{alias!r} may not. Run ALTER ROLE {role} CREATEDB, or let {alias!r} lead "
            f"to a server where it may."
        ) from error
    except psycopg.OperationalError as error:
        detail = str(error).strip()
        raise CommandError(f"Database {alias!r} cannot be used: {detail}") from error


def _migrate(made: Scratch) -> None:
    with connections[made.alias].cursor() as cursor:
        found = scratch.current_database(cursor)
    if found != made.name:
        raise CommandError(
            f"Database {made.alias!r} led to {found!r} instead of {made.name!r}: its "
            f"OPTIONS, or a pooler, choose the database. Nothing was measured."
        )
    # Not the command migrate: its signals would run what the project does after it.
    executor = MigrationExecutor(connections[made.alias])
    nodes = executor.loader.graph.leaf_nodes()
    executor.migrate([node for node in nodes if node[0] == "pgqueue"])
    with made.connect() as connection:
        yardstick.create(connection)


def _drop(alias: str, name: str) -> None:
    # It was never made if the server could not be reached; that error says so.
    with (
        contextlib.suppress(psycopg.OperationalError),
        connect(alias, name="pgqueue bench") as connection,
    ):
        scratch.drop_database(connection.cursor(), name)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Let an impatient second Ctrl+C not leave the database behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
