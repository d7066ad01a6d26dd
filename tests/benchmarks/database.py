"""Databases: one a peer, on one server, fresh in every turn."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from django_pgqueue.testing.embedded import database_url
from tests.benchmarks.environments import REPOSITORY

Connection = psycopg.Connection[tuple[Any, ...]]

# libpq's environment variables, which psycopg, asyncpg and pg all read.
VARIABLES = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
}

# What decides how fast a server is, and is not in its version.
PARAMETERS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "wal_level",
    "autovacuum",
)

OWN_BACKENDS = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database()
"""


class Server:
    """The server of DATABASE_URL, or the embedded one of the checkout."""

    def __init__(self) -> None:
        self._conninfo = make_conninfo(database_url(REPOSITORY))
        self._suffix = secrets.token_hex(4)
        self._made: list[str] = []

    def parameters(self) -> dict[str, str]:
        """Return its version, and the settings that matter."""
        with self._connect() as connection:
            shown = [
                connection.execute(f"SHOW {name}").fetchone() for name in PARAMETERS
            ]
        return {
            name: row[0] for name, row in zip(PARAMETERS, shown, strict=True) if row
        }

    def make(self, name: str, template: str = "template0") -> Database:
        """Make a database, in place of the one of this name."""
        full = f"pgqueue_peers_{self._suffix}_{name}"
        self._drop(full)
        command = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        with self._connect() as connection:
            connection.execute(
                command.format(sql.Identifier(full), sql.Identifier(template))
            )
        self._made.append(full)
        return Database(full, make_conninfo(self._conninfo, dbname=full))

    def checkpoint(self) -> None:
        """Write what earlier turns left, so that no later one pays for it."""
        with (
            contextlib.suppress(psycopg.errors.InsufficientPrivilege),
            self._connect() as connection,
        ):
            connection.execute("CHECKPOINT")

    def drop(self, database: Database) -> None:
        """Remove a database, whoever is connected to it."""
        self._drop(database.name)
        self._made.remove(database.name)

    def close(self) -> None:
        """Remove every database that is left."""
        for name in self._made:
            self._drop(name)

    def _drop(self, name: str) -> None:
        command = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        with self._connect() as connection:
            connection.execute(command.format(sql.Identifier(name)))

    def _connect(self) -> Connection:
        return psycopg.connect(self._conninfo, autocommit=True)


class Database:
    """One database: where its peer finds it, and what the command asks it."""

    def __init__(self, name: str, conninfo: str) -> None:
        self.name = name
        self._conninfo = conninfo

    @property
    def environment(self) -> dict[str, str]:
        """Where it is, for the programs of its peer."""
        told = conninfo_to_dict(self._conninfo)
        return {
            VARIABLES[key]: str(value)
            for key, value in told.items()
            if key in VARIABLES and value is not None
        }

    @contextlib.contextmanager
    def connect(self) -> Iterator[Connection]:
        """Give a connection of the command's own."""
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            yield connection


def backends(connection: Connection) -> set[int]:
    """Return the server's processes for this database, but the asking one."""
    rows = connection.execute(OWN_BACKENDS).fetchall()
    return {pid for (pid,) in rows} - {connection.info.backend_pid}


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """Give the server, and leave nothing on it."""
    used = Server()
    try:
        yield used
    finally:
        used.close()
