"""Cursor: what the statements of this package ask of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from psycopg.sql import SQL, Composed

    Query = str | SQL | Composed

T = TypeVar("T")

Params = Sequence[Any] | Mapping[str, Any]


class Cursor(Protocol):
    """
    A cursor: Django's, psycopg's, or that of a link of the worker.

    Whoever calls decides about its connection, and so about the transaction. Rows are
    tuples, whose columns only the statement knows.
    """

    @property
    def rowcount(self) -> int:
        """How many rows the last statement returned or changed."""

    @property
    def description(self) -> Any:
        """The columns of the last result; ``None`` without one."""

    @property
    def connection(self) -> Any:
        """The connection, Django's or psycopg's."""

    def execute(self, query: Query, params: Params | None = None, /) -> Any:
        """Run a statement."""

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row; ``None``: there is no other."""

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that are left."""


def one_row(cursor: Cursor) -> tuple[Any, ...]:
    """Return the row of a statement that always returns one."""
    row = cursor.fetchone()
    assert row is not None, "no row of a statement that always returns one"
    return row


def value(cursor: Cursor, statement: Query, /, **params: Any) -> Any:
    """Run a statement that always returns one row, and return its first value."""
    cursor.execute(statement, params or None)
    return one_row(cursor)[0]


def has_row(cursor: Cursor, statement: Query, /, **params: Any) -> bool:
    """Run a statement, and return whether it has returned a row."""
    cursor.execute(statement, params or None)
    return cursor.fetchone() is not None


def first(cursor: Cursor, statement: Query, /, **params: Any) -> Any:
    """Run a statement, and return the first value of its row; None: no row."""
    cursor.execute(statement, params or None)
    row = cursor.fetchone()
    return None if row is None else row[0]


def record(
    kind: Callable[..., T], cursor: Cursor, statement: Query, /, **params: Any
) -> T | None:
    """Run a statement, and return its row as *kind* makes it; None: no row."""
    cursor.execute(statement, params or None)
    row = cursor.fetchone()
    return None if row is None else kind(*row)


def rows(
    kind: Callable[..., T], cursor: Cursor, statement: Query, /, **params: Any
) -> list[T]:
    """Run a statement, and return its rows, each as *kind* makes it of its columns."""
    cursor.execute(statement, params or None)
    return [kind(*row) for row in cursor.fetchall()]


def column(cursor: Cursor, statement: Query, /, **params: Any) -> list[Any]:
    """Run a statement, and return the first value of each of its rows."""
    cursor.execute(statement, params or None)
    return [row[0] for row in cursor.fetchall()]


def records(cursor: Cursor, statement: Query, /, **params: Any) -> list[Any]:
    """Run a statement, and return its rows, whose attributes are its columns."""
    cursor.execute(statement, params)
    names = [column[0] for column in cursor.description]
    return [
        SimpleNamespace(**dict(zip(names, row, strict=True)))
        for row in cursor.fetchall()
    ]
