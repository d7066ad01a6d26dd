"""Two installations in one database, a schema each, as an application with tenants."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, connections
from psycopg import sql

from tests.harness.databases import lent

# Of a name that has to be quoted, too.
SCHEMAS = ("one", 'tenant "2"')

Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture(scope="module")
def installations(
    django_db_setup: None, django_db_blocker: Any
) -> Iterator[tuple[str, ...]]:
    """A database as the alias "tenants"; the names of its two schemas."""
    with lent(_made(), django_db_blocker) as schemas:
        yield schemas


@contextmanager
def _made() -> Iterator[tuple[str, ...]]:
    name = f"{connection.settings_dict['NAME']}_{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        with connection._nodb_cursor() as cursor:
            cursor.execute(f'CREATE DATABASE "{name}"')
        connections.databases["tenants"] = {**connection.settings_dict, "NAME": name}
        stack.callback(_drop, name)
        for schema in SCHEMAS:
            with connections["tenants"].cursor() as cursor:
                quoted = sql.Identifier(schema)
                cursor.execute(sql.SQL("CREATE SCHEMA {}").format(quoted))
                cursor.execute(sql.SQL("SET search_path = {}").format(quoted))
            call_command("migrate", "pgqueue", database="tenants", verbosity=0)
            connections["tenants"].close()
        yield SCHEMAS


@pytest.fixture
def to(installations: tuple[str, ...]) -> Iterator[Connect]:
    """A factory of connections in autocommit: of a schema, or with another path."""
    info = connections.databases["tenants"]
    with ExitStack() as stack:

        def to(schema: str = "one", *, path: str | None = None) -> Any:
            opened = psycopg.connect(
                autocommit=True,
                dbname=info["NAME"],
                user=info["USER"] or None,
                password=info["PASSWORD"] or None,
                host=info["OPTIONS"].get("host", info["HOST"]) or None,
                port=info["OPTIONS"].get("port", info["PORT"]) or None,
            )
            stack.callback(opened.close)
            opened.execute("SET statement_timeout = '60s'")
            if path is None:
                path = sql.Identifier(schema).as_string(opened)
            opened.execute(f"SET search_path = {path}")
            return opened

        yield to


def _drop(name: str) -> None:
    if "tenants" in connections.databases:
        connections["tenants"].close()
        del connections["tenants"]
        del connections.databases["tenants"]
    with connection._nodb_cursor() as cursor:
        cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
