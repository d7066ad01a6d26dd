"""Server: a PostgreSQL of the run's own, which Java can reach too."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from django_pgqueue.testing import embedded
from tests.benchmarks.environments import REPOSITORY
from tests.faults.server import Server

PARAMETERS = {"shared_buffers": "1GB", "max_wal_size": "8GB"}

# Java knows no Unix sockets, and another server may have this port of 127.0.0.1.
ADDRESS = f"127.{secrets.randbelow(254) + 1}.{secrets.randbelow(256)}.1"
HBA = "\nhost all all {address}/32 scram-sha-256\n"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the server is: over TCP, for both kinds of drivers."""

    url: str = field(repr=False)  # Over its socket, for DATABASE_URL.
    dsn: str = field(repr=False)
    jdbc: str
    user: str
    password: str = field(repr=False)
    postmaster: int

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Open a connection in autocommit."""
        return psycopg.connect(self.dsn, autocommit=True)


@contextmanager
def migrated_server() -> Iterator[Place]:
    """Give a server with the tables; nothing of it is left."""
    # The server is made for one project on one machine; here it is one for TCP.
    embedded.PARAMETERS.update(PARAMETERS, listen_addresses=ADDRESS)
    password = secrets.token_hex(16)
    with Server() as server, server.connect() as connection:
        user, database = _names(connection)
        connection.execute(
            sql.SQL("ALTER ROLE {} PASSWORD {}").format(
                sql.Identifier(user), sql.Literal(password)
            )
        )
        with (server.home / "data" / "pg_hba.conf").open("a") as hba:
            hba.write(HBA.format(address=ADDRESS))
        connection.execute("SELECT pg_reload_conf()")
        port = connection.info.port
        place = Place(
            url=server.url,
            dsn=make_conninfo(
                host=ADDRESS, port=port, user=user, dbname=database, password=password
            ),
            jdbc=f"jdbc:postgresql://{ADDRESS}:{port}/{database}",
            user=user,
            password=password,
            postmaster=int(
                (server.home / "data" / "postmaster.pid").read_text().splitlines()[0]
            ),
        )
        subprocess.run(
            [sys.executable, "-m", "django", "migrate", "-v0"],
            cwd=REPOSITORY,
            env={
                **os.environ,
                "DATABASE_URL": server.url,
                "DJANGO_SETTINGS_MODULE": "tests.settings",
                "PYTHONPATH": str(REPOSITORY),
            },
            check=True,
            timeout=120,
        )
        yield place


def _names(connection: psycopg.Connection[Any]) -> tuple[str, str]:
    row = connection.execute("SELECT current_user, current_database()").fetchone()
    assert row is not None
    return row
