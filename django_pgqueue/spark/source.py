"""
The data source: spark.read.format("pgqueue"), and readStream for the log of topics.

Spark makes it anew in a Python of its own for each step (to look up the schema, to
plan, to read), and pickles it in between; so it keeps its options and nothing else.
Spark knows it by the module in toplevel/, without registration, or by a session that
session.py has opened, which also says what is redacted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
)

from django_pgqueue.exceptions import SparkError, SparkOptionError
from django_pgqueue.spark import filters, options, query, reader, slices
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.log import read as log
from django_pgqueue.spark.log.bounds import check_primary
from django_pgqueue.spark.log.starting import EARLIEST, LATEST, Place
from django_pgqueue.spark.redact import Redaction
from django_pgqueue.spark.tables import Column, Table, ddl


class PgQueueSource(DataSource):
    """Reads jobs, archive, dead letters, the log and queries; writes jobs."""

    # What a session hides; one that nobody has set up hides by the default patterns.
    redaction = Redaction()

    @classmethod
    def name(cls) -> str:
        """Return what format() calls it."""
        return "pgqueue"

    def schema(self) -> str:
        """Return the columns that are read, unless .schema(…) names them."""
        asked = options.parse(self.options)
        if asked.query is not None:
            with Session(asked.dsn.read(os.environ), table=None) as session:
                return query.ddl(query.describe(session, asked.query))
        return ddl(asked.columns or asked.table.columns)

    def reader(self, schema: Any) -> DataSourceReader:
        """Return what reads the columns of *schema*."""
        asked = options.parse(self.options, streams=False)
        if asked.query is not None:
            return QueryReader(asked, query.columns_of(schema))
        return PgQueueReader(asked, columns_of(schema, asked), self._redaction(asked))

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
        return LogStreamReader(asked, columns_of(schema, asked), self._redaction(asked))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """Return what makes jobs of rows of *schema*."""
        # Only who writes needs psycopg.
        from django_pgqueue.spark.write.writer import make_writer

        return make_writer(self.options, schema, overwrite)

    def _redaction(self, asked: options.ReadOptions) -> Redaction:
        if asked.redact is None:
            return self.redaction
        return Redaction(asked.redact, self.redaction.places)


class PgQueueReader(DataSourceReader):
    """One read: planned on the driver, run by a task for each partition."""

    def __init__(
        self,
        asked: options.ReadOptions,
        columns: tuple[Column, ...],
        redaction: Redaction,
    ) -> None:
        self._asked = asked
        self._columns = columns
        self._redaction = redaction
        self._conditions: list[str] = []
        self._period = filters.Period()
        # Spark refuses a reader that has a pushFilters() of its own in every session
        # that does not push filters down, and a reader cannot ask which it is in.
        self.pushFilters = _PushFilters(self)

    def push(self, pushed: list[Any]) -> Iterable[Any]:
        """Take what PostgreSQL can answer; return what is left to Spark."""
        table = self._asked.table
        self._conditions, left = filters.divide(pushed, table)
        self._period = filters.period(pushed, table)
        return left

    def partitions(self) -> list[InputPartition]:
        """Fix what is read, and divide it among tasks."""
        asked = self._asked
        partitions = asked.partitions
        if partitions is None and asked.rows_per_second_max is not None:
            partitions = 1
        with self._session() as session:
            tasks = self._tasks(session, partitions)
        # A rate is shared by all, though not all may run at once.
        rate = asked.rows_per_second_max
        share = rate / len(tasks) if rate and tasks else None
        return [InputPartition((task, share)) for task in tasks] or [
            InputPartition(((), None))
        ]

    def _tasks(
        self, session: Session, partitions: int | None
    ) -> list[tuple[slices.Slice, ...]]:
        asked = self._asked
        if not asked.table.is_log:
            return slices.plan(
                session, asked.table, partitions=partitions, period=self._period
            )
        return log.plan(
            session,
            names=asked.topics,
            begin=asked.starting or Place(word=EARLIEST),
            end=asked.ending or Place(word=LATEST),
            partitions=partitions,
            period=self._period,
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one task as Arrow batches."""
        task, rows_per_second = partition.value
        if not task:
            return
        with self._session() as session:
            if self._asked.table.is_log:
                check_primary(session)
            yield from reader.read(
                session,
                self._asked.table,
                self._columns,
                task,
                conditions=self._conditions,
                redaction=self._redaction,
                rows_per_second=rows_per_second,
            )

    def _session(self) -> Session:
        asked = self._asked
        return Session(asked.dsn.read(os.environ), table=asked.table.name)


class QueryReader(DataSourceReader):
    """One read of a query; Spark compares what conditions there are."""

    def __init__(
        self, asked: options.ReadOptions, columns: tuple[query.QueryColumn, ...]
    ) -> None:
        self._asked = asked
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Divide the query among tasks."""
        asked = self._asked
        assert asked.query is not None
        rate = asked.rows_per_second_max
        partitions = asked.partitions
        if partitions is None and rate is not None:
            partitions = 1
        with self._session() as session:
            tasks = query.plan(
                session, asked.query, divide_by=asked.divide_by, partitions=partitions
            )
        share = rate / len(tasks) if rate else None
        return [InputPartition((task, share)) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one task as Arrow batches."""
        task, rows_per_second = partition.value
        assert self._asked.query is not None
        with self._session() as session:
            yield from query.read(
                session,
                self._asked.query,
                self._columns,
                task,
                rows_per_second=rows_per_second,
            )

    def _session(self) -> Session:
        return Session(self._asked.dsn.read(os.environ), table=None)


class _PushFilters:
    """PgQueueReader.push(), looking like the method that pushes nothing."""

    def __init__(self, owner: PgQueueReader) -> None:
        # On the instance: on the class it would be bound, and so another one.
        self.__func__ = DataSourceReader.pushFilters
        self._owner = owner

    def __call__(self, pushed: list[Any]) -> Iterable[Any]:
        return self._owner.push(pushed)


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
