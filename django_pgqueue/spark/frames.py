"""
Frames: what a pipeline job reads by its run, from the run's database at the run's pace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django_pgqueue.spark import options, query
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.tables import TABLES
from django_pgqueue.spark.write import once


def table_frame(
    session: Any,
    table: str,
    columns: Sequence[str] | None,
    read_options: Mapping[str, str],
) -> Any:
    """Return the rows of a table of the queue; see Run.read()."""
    asked = options.parse({"table": table, **read_options}, streams=False)
    reader = session.read.format("pgqueue").option("table", table)
    if columns is not None:
        options.select(list(columns), asked.table)
        known = {column.name: column for column in TABLES[table].columns}
        reader = reader.schema(", ".join(f"{c} {known[c].type}" for c in columns))
    return reader.options(**read_options).load()


def query_options(
    sql: str,
    divide_by: str | None,
    partitions: int | None,
    read_options: Mapping[str, str],
) -> dict[str, str]:
    """
    Return the options of a query, checked.

    Raises:
        SparkOptionError: It cannot be, or cannot be read as the run asks for.
    """
    given = {"query": sql}
    if divide_by is not None:
        given["divideBy"] = divide_by
    if partitions is not None:
        given["partitions"] = str(partitions)
    given.update(read_options)
    options.parse(given)
    return given


def query_frame(session: Any, given: Mapping[str, str]) -> Any:
    """Return the rows of a query, for what query_options() has returned."""
    asked = options.parse(given)
    assert asked.query is not None
    # Here, and not by the data source: an error of PostgreSQL's stays a short one.
    with Session(once.find_dsn(session, asked.dsn), table=None) as connection:
        columns = query.describe(connection, asked.query)
    reader = session.read.format("pgqueue").schema(query.ddl(columns))
    return reader.options(**given).load()
