"""
The data source: spark.read.format("pgqueue"), and readStream for the log of topics.

Spark makes it anew in a Python of its own for each step (to look up the schema, to
plan, to read), and pickles it in between; so it keeps its options and nothing else.
Spark knows it by the module in toplevel/, without registration, or by a session that
session.py has opened, which also says what is redacted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
)

from django_pgqueue.exceptions import SparkError, SparkOptionError
from django_pgqueue.spark import options, reader, slices
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.log import read as of_log
from django_pgqueue.spark.log.offsets import EARLIEST, LATEST, Place, check_primary
from django_pgqueue.spark.redact import Redaction
from django_pgqueue.spark.tables import Column, Table, ddl

log = logging.getLogger(__name__)

# Of tables: whoever plans in this process has been told.
_told: set[str] = set()


class PgQueueSource(DataSource):
    """Reads jobs, archive, dead letters and the log; writes jobs."""

    # What a session hides; one that nobody has set up hides by the default patterns.
    redaction = Redaction()

    @classmethod
    def name(cls) -> str:
        """Return what format() calls it."""
        return "pgqueue"

    def schema(self) -> str:
        """Return the columns that are read, unless .schema(…) names them."""
        asked = options.parse(self.options)
        return ddl(asked.columns or asked.table.columns)

    def reader(self, schema: Any) -> DataSourceReader:
        """Return what reads the columns of *schema*."""
        asked = options.parse(self.options, streams=False)
        return PgQueueReader(
            asked, columns_of(schema, asked), asked.redaction(self.redaction)
        )

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        """Return what streams the columns of *schema* out of the log."""
        try:
            from django_pgqueue.spark.log.stream import LogStreamReader
        except ImportError:
            raise SparkError(
                "A stream of the log needs Spark 4.2 or later, which lets a source "
                "bound its batches; spark.read reads the log with any."
            ) from None
        asked = options.parse(self.options, streams=True)
        return LogStreamReader(
            asked, columns_of(schema, asked), asked.redaction(self.redaction)
        )

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """Return what makes jobs of rows of *schema*."""
        # Only who writes needs psycopg.
        from django_pgqueue.spark.write.writer import make_writer

        return make_writer(self.options, schema, overwrite)


@dataclass(eq=False)
class PgQueueReader(DataSourceReader):
    """One read: planned on the driver, run by a task for each partition."""

    _asked: options.ReadOptions
    _columns: tuple[Column, ...]
    _redaction: Redaction

    def partitions(self) -> list[InputPartition]:
        """Fix what is read, and divide it among tasks."""
        asked = self._asked
        _tell_of_columns(asked.table, self._columns)
        with self._session() as session:
            tasks = self._tasks(session)
        rate = asked.rate_of(tasks)
        return [InputPartition((task, rate)) for task in tasks] or [
            InputPartition(((), None))
        ]

    def _tasks(self, session: Session) -> list[tuple[slices.Slice, ...]]:
        asked = self._asked
        if not asked.table.is_log:
            return slices.plan(session, asked.table, partitions=asked.tasks_max)
        return of_log.plan(
            session,
            names=asked.topics,
            begin=asked.starting or Place(word=EARLIEST),
            end=asked.ending or Place(word=LATEST),
            partitions=asked.tasks_max,
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one task as Arrow batches."""
        task, rows_per_second = partition.value
        if not task:
            return
        with self._session() as session:
            if self._asked.table.is_log:
                check_primary(session.cursor())
            yield from reader.read(
                session,
                self._asked.table,
                self._columns,
                task,
                redaction=self._redaction,
                rows_per_second=rows_per_second,
            )

    def _session(self) -> Session:
        asked = self._asked
        return Session(asked.dsn.read(), table=asked.table.name)


def columns_of(schema: Any, asked: options.ReadOptions) -> tuple[Column, ...]:
    """
    Return the columns that a schema of Spark asks for.

    Raises:
        SparkOptionError: An unknown column, or one of another type than the contract's;
            or the option columns says something else.
    """
    table = asked.table
    columns = options.select([field.name for field in schema.fields], table)
    for column, field in zip(columns, schema.fields, strict=True):
        _check_type(table, column, field)
    if asked.columns is not None and asked.columns != columns:
        raise SparkOptionError(
            "The option columns and .schema(…) ask for different columns: give one of "
            "them."
        )
    return columns


def _tell_of_columns(table: Table, columns: tuple[Column, ...]) -> None:
    """Say once how to read fewer columns: Spark does not tell which a query needs."""
    if len(columns) < len(table.columns) or table.name in _told:
        return
    _told.add(table.name)
    log.warning(
        "All %s columns of %s are fetched, though a count() needs none of them and a "
        'groupBy() few: name what you need, .option("columns", "id"), or read by '
        "django_pgqueue.spark.read(), whose JDBC source fetches what is used.",
        len(columns),
        table.name,
    )


def _check_type(table: Table, column: Column, field: Any) -> None:
    kind = field.dataType.simpleString()
    if kind != column.type:
        raise SparkOptionError(
            f"Column {column.name} of {table.name} is of type {column.type}, not "
            f"{kind}: read it so, and cast it afterwards."
        )
    if not field.nullable:
        raise SparkOptionError(
            f"Column {column.name} is declared NOT NULL in .schema(…): every column "
            f"that is read may be NULL; leave NOT NULL out."
        )
