"""
What the server is and has: asked by the worker at start, by checks and the doctor.
"""

from __future__ import annotations

from dataclasses import dataclass

from django_pgqueue.postgres.cursor import Cursor, column, one_row, value

# The hot path is wrong (no unique dedup key) or slow (a scan per claim) without these.
HOT_INDEXES = ("pgqueue_job_pkey", "pgqueue_job_claim", "pgqueue_job_dedup_key")

# Locks: none beyond ACCESS SHARE on catalogues.
FACTS = """
SELECT current_setting('server_version'),
       current_setting('server_version_num')::int,
       current_setting('max_connections')::int
           - current_setting('superuser_reserved_connections')::int
           -- Since PostgreSQL 16.
           - coalesce(current_setting('reserved_connections', true)::int, 0),
       current_database()
"""

# An index that CREATE INDEX CONCURRENTLY left invalid counts as missing.
MISSING_INDEXES = """
SELECT name FROM unnest(%(names)s::text[]) name
 WHERE NOT EXISTS (
       SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid = to_regclass('pgqueue_job')
          AND c.relname = name AND i.indisvalid AND i.indisready)
"""

INSTALLATION = "SELECT pgqueue_installation()::text"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a worker prints and checks about its server."""

    version: str
    version_number: int  # 180004 is 18.4.
    connections_max: int  # Those that a role which is no superuser can get.
    database: str


def facts(cursor: Cursor) -> Facts:
    """Return the version, connection limit and database of the server."""
    cursor.execute(FACTS)
    return Facts(*one_row(cursor))


def missing_indexes(cursor: Cursor) -> list[str]:
    """Return the hot indexes of pgqueue_job that are absent or invalid."""
    return column(cursor, MISSING_INDEXES, names=list(HOT_INDEXES))


def installation(cursor: Cursor) -> str:
    """Return the uuid of this installation, the first half of idempotency keys."""
    found: str = value(cursor, INSTALLATION)
    return found
