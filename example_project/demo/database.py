"""A database of this run's own, so that two runs at once do not see each other."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import environ
import psycopg
from psycopg import sql

from django_pgqueue.testing.embedded import database_url
from example_project.demo.project import CHECKOUT

PREFIX = "pgqueue_demo_"

# Those that nobody uses. A run that was killed leaves its database behind.
UNUSED = """
SELECT datname FROM pg_database d
 WHERE starts_with(datname, %(prefix)s)
   AND NOT EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.datname = d.datname)
"""


@contextmanager
def own_database() -> Iterator[str]:
    """
    Create a database and yield its name; DATABASE_URL points to it until it is dropped.

    It is in the embedded server, unless DATABASE_URL names another.
    """
    is_embedded = not os.environ.get("DATABASE_URL")
    url = database_url(CHECKOUT)
    name = f"{PREFIX}{os.getpid()}_{secrets.token_hex(2)}"
    with _server(url) as server:
        if is_embedded:
            _drop_left_over(server)
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    os.environ["DATABASE_URL"] = urlsplit(url)._replace(path=f"/{name}").geturl()
    try:
        yield name
    finally:
        os.environ["DATABASE_URL"] = url
        with _server(url) as server:
            # FORCE: whoever still is connected was killed and does not know.
            statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
            server.execute(statement.format(sql.Identifier(name)))


def _server(url: str) -> psycopg.Connection:
    # The parts of a URL that Django and django-environ understand.
    parts = environ.Env.db_url_config(url)
    named = {
        "dbname": parts["NAME"],
        "user": parts["USER"],
        "password": parts["PASSWORD"],
        "host": parts["HOST"],
        "port": parts["PORT"],
    }
    given = {key: value for key, value in named.items() if value}
    return psycopg.connect(**given, **parts.get("OPTIONS", {}), autocommit=True)


def _drop_left_over(server: psycopg.Connection) -> None:
    for (name,) in server.execute(UNUSED, {"prefix": PREFIX}).fetchall():
        pid = name.removeprefix(PREFIX).partition("_")[0]
        if pid.isdecimal() and not _is_alive(int(pid)):
            statement = sql.SQL("DROP DATABASE IF EXISTS {}")
            server.execute(statement.format(sql.Identifier(name)))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
