"""
Connect: a session of the database through ADBC, which hands out Arrow batches.

ADBC brings its own libpq, so that an executor needs no other. Sessions are read-only
and in autocommit. Those of a table read pages by the primary key, whatever the
statistics say.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from datetime import datetime
from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.extras import arrow, extra
from django_pgqueue.spark.dsn import without_secrets

# Locks: none. Times are cast to timestamptz, and read as UTC in any case.
SET_UP = (
    "SET default_transaction_read_only = on",
    "SET default_transaction_isolation = 'read committed'",
    "SET client_encoding = 'UTF8'",
    "SET timezone = 'UTC'",
)

# Locks: none. A page is found by its first id, so there is no better plan than the
# index of the primary key; without statistics the planner would sort the whole table
# for each page. A query of the user's is planned as ever.
FOR_PAGES = (
    "SET enable_seqscan = off",
    "SET enable_bitmapscan = off",
    "SET enable_sort = off",
    "SET jit = off",
)

# ADBC's option of a statement.
USE_COPY = "adbc.postgresql.use_copy"

NAME = "SET application_name = 'pgqueue spark: {table}'"


class Session:
    """
    One session of the database. Not shared between threads.

    Args:
        dsn: As DsnSource.read() returns it.
        table: Whose rows are read; operators see it in pg_stat_activity. None: those
            of a query.

    Raises:
        SparkError: It cannot be opened. The text has no secret of *dsn*.
    """

    def __init__(self, dsn: str, *, table: str | None) -> None:
        self._driver = extra("adbc_driver_postgresql.dbapi")
        # What goes wrong after the first batch comes as an error of Arrow's.
        self._errors: tuple[type[Exception], ...] = (
            self._driver.Error,
            arrow.ArrowException,
            OSError,
        )
        self._dsn = dsn
        self._table = table
        self._connection: Any = None
        self.reopen()

    def reopen(self) -> None:
        """Begin anew, whatever the session was doing."""
        self.close()
        try:
            self._connection = self._driver.connect(self._dsn, autocommit=True)
            pages = () if self._table is None else FOR_PAGES
            name = NAME.format(table=self._table or "query")
            self._run(*SET_UP, *pages, name)
        except self._errors as error:
            self.close()
            raise self._translated(error, "cannot be opened") from None

    def execute(self, *statements: str) -> None:
        """Run *statements* of which there is nothing to read."""
        try:
            self._run(*statements)
        except self._errors as error:
            raise self._translated(error, "broke off") from None

    def rows(self, statement: str, *, copies: bool = True) -> list[dict[str, Any]]:
        """Return the few rows of *statement*; copies: as batches()."""
        return [
            row
            for batch in self.batches(statement, copies=copies)
            for row in batch.to_pylist()
        ]

    def cursor(self) -> Any:
        """Return what runs statements of this package that have parameters."""
        return _Cursor(self)

    def schema(self, statement: str) -> Any:
        """Return the pyarrow.Schema of *statement*, whose rows are left."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
                with cursor.fetch_record_batch() as reader:
                    return reader.schema
        except self._errors as error:
            raise self._translated(error, "does not take the query") from None

    def batches(
        self, statement: str, *, copies: bool = True
    ) -> Generator[Any, None, None]:
        """
        Yield the rows of *statement* as pyarrow.RecordBatch, as they come.

        The statement runs until the last batch is taken; who stops before must close
        the session.

        Args:
            copies: By COPY, which is quick; False: EXPLAIN and the like.
        """
        try:
            with self._connection.cursor() as cursor:
                if not copies:
                    cursor.adbc_statement.set_options(**{USE_COPY: "false"})
                cursor.execute(statement)
                with cursor.fetch_record_batch() as reader:
                    yield from reader
        except self._errors as error:
            raise self._translated(error, "broke off") from None

    def close(self) -> None:
        """End the session, whatever it is doing."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, *statements: str) -> None:
        with self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def _translated(self, error: Exception, what: str) -> SparkError:
        problem = without_secrets(" ".join(str(error).split()), self._dsn)
        return SparkError(f"The session with PostgreSQL {what}: {problem}")


class _Cursor:
    """What postgres.cursor.Cursor asks of one to read; values go in as literals."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows: list[tuple[Any, ...]] = []

    def execute(self, query: str, params: Mapping[str, Any] | None = None, /) -> None:
        """Run a statement, and fetch all rows of it."""
        if params is not None:
            query %= {name: _literal(value) for name, value in params.items()}
        self._rows = [
            row
            for batch in self._session.batches(query)
            for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
        ]

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row; None: there is no other."""
        return self._rows.pop(0) if self._rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that are left."""
        rows, self._rows = self._rows, []
        return rows


def _literal(value: float | datetime | list[int]) -> str:
    """Return a number, a moment or a list of numbers as SQL has it."""
    if isinstance(value, datetime):
        return f"'{value.isoformat()}'::timestamptz"
    if isinstance(value, list):
        return f"'{{{', '.join(map(str, map(int, value)))}}}'"
    return str(float(value) if isinstance(value, float) else int(value))
