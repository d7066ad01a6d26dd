"""Readiness: what a worker asks before it starts, so that it refuses clearly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import SchemaError
from django_pgqueue.postgres.connect import is_pooled, is_read_committed
from django_pgqueue.postgres.rights import Rights, rights
from django_pgqueue.postgres.server import Facts, facts, missing_indexes
from django_pgqueue.tasks.errors import check_alias, check_engine

VERSION_MIN = 140_000


@dataclass(frozen=True, slots=True)
class Readiness:
    """What the worker found."""

    server: Facts
    rights: Rights
    # Whether a pooler stands before the server.
    is_pooled: bool


def check_aliases(settings: Settings) -> None:
    """
    Verify that DATABASES has the aliases that PGQUEUE names.

    Raises:
        SchemaError: It lacks one.
    """
    for key in ("database", "listen_database"):
        alias = getattr(settings, key)
        if alias is not None:
            check_alias(key.upper(), alias)


def check_readiness(alias: str) -> Readiness:
    """
    Verify the engine, the version, the migrations, hot indexes and, pooled, isolation.

    Leaves no connection open: the supervisor forks next.

    Raises:
        SchemaError: Something is missing; the message says how to fix it.
        django.db.OperationalError: The database cannot be reached.
    """
    connection = connections[alias]
    check_engine(alias)
    try:
        with connection.cursor() as cursor:
            server = facts(cursor)
            _check_version(server)
            _check_migrations(alias)
            missing = missing_indexes(cursor)
            granted = rights(cursor)
        pooled = is_pooled(connection.connection)
        if pooled:
            _check_isolation(alias, connection.connection)
        if missing:
            raise SchemaError(
                f"Database {alias!r} lacks the valid index {', '.join(missing)}; "
                f"claims would scan the table. Run REINDEX INDEX CONCURRENTLY, or make "
                f"it again as the migration does."
            )
        return Readiness(server, granted, pooled)
    finally:
        close_connections()


def close_connections() -> None:
    """Close all of Django's connections: the supervisor forks next."""
    for other in connections.all(initialized_only=True):
        other.close()
        if getattr(other, "pool", None):
            other.close_pool()  # type: ignore[attr-defined]


def _check_version(server: Facts) -> None:
    if server.version_number < VERSION_MIN:
        raise SchemaError(
            f"PostgreSQL {server.version} is too old; 14 is the oldest supported."
        )


def _check_isolation(alias: str, session: psycopg.Connection[Any]) -> None:
    """Refuse a role whose default workers would have to change for their session."""
    if not is_read_committed(session):
        role = session.info.user
        raise SchemaError(
            f"The role {role!r} of database {alias!r} is not read committed by "
            f"default, as claims need it, and behind a pooler a worker cannot set "
            f"that for its session. Run: ALTER ROLE {role} SET "
            f"default_transaction_isolation = 'read committed'; and let the pooler "
            f"reconnect."
        )


def pending_migrations(alias: str) -> list[str]:
    """Return the migrations of this package that *alias* lacks, in their order."""
    executor = MigrationExecutor(connections[alias])
    targets = [key for key in executor.loader.graph.leaf_nodes() if key[0] == "pgqueue"]
    return [
        migration.name
        for migration, _ in executor.migration_plan(targets)
        if migration.app_label == "pgqueue"
    ]


def _check_migrations(alias: str) -> None:
    pending = pending_migrations(alias)
    if pending:
        raise SchemaError(
            f"Database {alias!r} lacks the migrations {', '.join(pending)} of pgqueue. "
            f"Run: python manage.py migrate pgqueue --database {alias}"
        )
