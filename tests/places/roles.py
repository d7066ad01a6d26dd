"""The roles of docs/reference/roles.sql, made as a reader makes them, and removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

ROLES = Path(__file__).parents[2] / "docs" / "reference" / "roles.sql"
KINDS = ("producer", "worker", "client", "viewer")


@contextmanager
def granted(session: Any) -> Iterator[None]:
    """
    Run the file, and take back what it grants in this database.

    Args:
        session: A psycopg cursor or connection of the owner, in autocommit.
    """
    session.execute(ROLES.read_text("utf-8"))
    try:
        yield
    finally:
        for kind in KINDS:
            session.execute(f"DROP OWNED BY pgqueue_{kind}")
            # Another database of this server may have it, too.
            with suppress(psycopg.errors.DependentObjectsStillExist):
                session.execute(f"DROP ROLE pgqueue_{kind}")


@contextmanager
def login(session: Any, name: str, *, kind: str, password: str) -> Iterator[None]:
    """Have a role *name* that may log in, and is of a kind."""
    session.execute(
        f"CREATE ROLE {name} LOGIN PASSWORD '{password}' IN ROLE pgqueue_{kind}"
    )
    try:
        yield
    finally:
        session.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
