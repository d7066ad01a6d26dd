"""A schema of their own for the tables of an article."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conftest import Cursor


@pytest.fixture
def session(new_cursor: Callable[..., Cursor]) -> Iterator[Callable[[], Cursor]]:
    """
    A factory of cursors that see the article's tables and none of ours.

    Each is on a connection of its own, in autocommit; BEGIN opens a transaction.
    """
    owner = new_cursor()
    owner.execute("DROP SCHEMA IF EXISTS article CASCADE")
    owner.execute("CREATE SCHEMA article")
    opened: list[Cursor] = []

    def session() -> Cursor:
        cursor = new_cursor()
        cursor.execute("SET search_path = article")
        cursor.execute("SET TimeZone = 'UTC'")
        opened.append(cursor)
        return cursor

    yield session
    for cursor in opened:
        cursor.connection.close()
    owner.execute("DROP SCHEMA article CASCADE")
