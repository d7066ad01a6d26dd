"""
Session: one session of the database through psycopg, which can COPY and prepare.

Executors need psycopg and a libpq; psycopg[binary], of the extra [spark], brings both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from django_pgqueue.exceptions import SparkError
from django_pgqueue.spark.dsn import without_secrets

Connection = psycopg.Connection[tuple[Any, ...]]

# Locks: none. A COPY waits for Spark as long as that computes, and moving a million
# rows takes longer than a role's statements may; the isolation is what ON CONFLICT
# needs.
SET_UP = (
    "SET statement_timeout = 0",
    "SET idle_in_transaction_session_timeout = 0",
    "SET default_transaction_isolation = 'read committed'",
    "SET client_encoding = 'UTF8'",
    "SET application_name = 'pgqueue spark: write'",
)

# Of a transaction that has nothing but statements.
IDLE_SECONDS_MAX = 30

# Locks: none.
BRIEF = "SELECT set_config('idle_in_transaction_session_timeout', %(limit)s, true)"


@contextmanager
def session(dsn: str) -> Iterator[Connection]:
    """
    Lend a session in autocommit; it is closed afterwards.

    Raises:
        ConnectionLost: It cannot be opened, or broke; nobody knows whether the last
            statement took effect.
        SparkError: An SQL error. No text has a secret of *dsn*.
    """
    try:
        connection = psycopg.connect(_to_a_primary(dsn), autocommit=True)
    except psycopg.Error as error:
        raise ConnectionLost(f"PostgreSQL: {_error_text(error, dsn)}") from None
    try:
        for statement in SET_UP:
            connection.execute(statement)
        yield connection
    except psycopg.Error as error:
        if connection.closed:
            raise ConnectionLost(f"PostgreSQL: {_error_text(error, dsn)}") from None
        hint = ""
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            hint = ". Its documentation says under Grants what a role needs to write"
        elif isinstance(error, psycopg.errors.UndefinedTable):
            hint = ". Run manage.py migrate pgqueue, or set the role's search_path"
        raise SparkError(f"PostgreSQL: {_error_text(error, dsn)}{hint}.") from None
    finally:
        connection.close()


@contextmanager
def brief(connection: Connection) -> Iterator[None]:
    """
    Begin a transaction that has nothing but statements.

    The server ends it when it was idle for IDLE_SECONDS_MAX: a process that is frozen
    within keeps nobody from the write's name, or from its row.
    """
    with connection.transaction():
        connection.execute(BRIEF, {"limit": f"{IDLE_SECONDS_MAX}s"})
        yield


def _to_a_primary(dsn: str) -> str:
    """Return *dsn* so that it finds the primary among its servers, unless it says."""
    if "target_session_attrs" in conninfo_to_dict(dsn):
        return dsn
    return make_conninfo(dsn, target_session_attrs="read-write")


class ConnectionLost(SparkError):
    """The session broke, or could not be opened."""


def _error_text(error: Exception, dsn: str) -> str:
    return without_secrets(" ".join(str(error).split()), dsn)
