"""A database of its own: the queue in a schema of that name, roles and logins."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
from django.core.management import call_command
from django.db import connection, connections

from django_pgqueue.postgres.connect import connection_params
from tests.places.roles import KINDS, granted, login

# Neither first nor last, and "public" is not among them at all.
PATH = "app, queue, later"

QUEUE = {"options": "-c search_path=queue"}

PASSWORD = "places"

FILLED = """
SELECT string_agg(c.oid::regclass::text, ', ') FROM pg_class c
 WHERE c.relkind = 'r' AND c.relnamespace = 'queue'::regnamespace
   AND c.relname ~ '^pgqueue_' AND pg_relation_size(c.oid) > 0
"""

# A server may be set up so that nobody may call what they were not granted.
NOTHING_FOR_ALL = """
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA queue FROM PUBLIC
"""


class Place:
    """The database *name*, made by the role of the tests, who owns the tables."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.logins = {kind: f"{name}_{kind}" for kind in KINDS}

    def database(self, kind: str | None = None, **changes: Any) -> dict[str, Any]:
        """Return an entry of DATABASES for a login of *kind*; None: for the owner."""
        ours = connection.settings_dict
        options = {"options": f"-c search_path={PATH.replace(' ', '')}"}
        login = {"USER": self.logins[kind], "PASSWORD": PASSWORD} if kind else {}
        return {
            **ours,
            "NAME": self.name,
            "OPTIONS": {**ours["OPTIONS"], **options},
            **login,
            **changes,
        }

    def connect(self, kind: str | None = None) -> psycopg.Connection[Any]:
        """Open a connection of a login, or of the owner, in autocommit."""
        params = connection_params("default") | {"dbname": self.name}
        if kind:
            params |= {"user": self.logins[kind], "password": PASSWORD}
        opened = psycopg.connect(**params, autocommit=True)
        opened.execute(f"SET search_path = {PATH}")
        opened.execute("SET statement_timeout = '60s'")
        return opened

    def empty(self) -> None:
        """Remove what a test has left in the tables."""
        with self.connect() as owner:
            (tables,) = owner.execute(FILLED).fetchone() or (None,)
            if tables:
                owner.execute("SET lock_timeout = '10s'")
                owner.execute(f"TRUNCATE {tables} CASCADE")


@contextmanager
def made() -> Iterator[Place]:
    """Make the database, its tables by `migrate`, and the roles of the file."""
    place = Place(f"{connection.settings_dict['NAME']}_{uuid.uuid4().hex[:8]}")
    with ExitStack() as stack:
        with connection._nodb_cursor() as cursor:
            cursor.execute(f'CREATE DATABASE "{place.name}"')
        stack.callback(_drop, place.name)
        owner = stack.enter_context(place.connect())
        owner.execute("CREATE SCHEMA app; CREATE SCHEMA queue; CREATE SCHEMA later")
        # As a reader does: the schema of the queue is the only one that it sees.
        only = place.database(OPTIONS={**connection.settings_dict["OPTIONS"], **QUEUE})
        with as_queue(only) as name:
            call_command("migrate", "pgqueue", database=name, verbosity=0)
        owner.execute(NOTHING_FOR_ALL)
        stack.enter_context(granted(owner))
        for kind, name in place.logins.items():
            stack.enter_context(login(owner, name, kind=kind, password=PASSWORD))
        yield place


def _drop(name: str) -> None:
    with connection._nodb_cursor() as cursor:
        cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def as_queue(database: dict[str, Any]) -> Iterator[str]:
    """Have *database* as the alias "queue" in this thread: a test may use no other."""
    before = connections.databases["queue"]
    connections["queue"].close()
    del connections["queue"]
    connections.databases["queue"] = database
    try:
        yield "queue"
    finally:
        connections["queue"].close()
        del connections["queue"]
        connections.databases["queue"] = before
