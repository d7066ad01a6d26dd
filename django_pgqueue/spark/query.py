"""
Query: the columns of an SQL query, and how it is divided among tasks.

A query is one SELECT. It runs in a read-only transaction, as the database's role may,
and its columns say what Spark gets: they are cast, so that no driver guesses.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django_pgqueue.exceptions import SparkOptionError, did_you_mean
from django_pgqueue.extras import arrow
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.slices import DEFAULT_PARTITIONS_MAX
from django_pgqueue.spark.tables import TYPES, Column, quoted

# Rows of a divided query that make one more task, unless the option partitions says.
ROWS_PER_PARTITION = 250_000

CHARACTERS_MAX = 100_000

# Arrow's types as the driver gives them, in Spark's words.
OF_ARROW = {arrow: name for name, (_, arrow) in TYPES.items()}

# Types of PostgreSQL that travel as text.
AS_TEXT = {"uuid", "json", "jsonb"}

WHOLE = {"smallint", "int", "bigint"}

# Of a decimal.
DIGITS_MAX = 38

# What PostgreSQL calls a column that has no name.
NAMELESS = "?column?"

# Locks: those of the query, ACCESS SHARE as a rule. The line break ends a comment.
WHOLE_QUERY = "SELECT {columns} FROM (\n{query}\n) AS q"
NO_ROW = "SELECT * FROM (\n{query}\n) AS q LIMIT 0"
ENDS = """
SELECT min({column})::bigint AS first, max({column})::bigint AS last
  FROM (\n{query}\n) AS q
"""
EXPECTED = "EXPLAIN (FORMAT JSON) SELECT * FROM (\n{query}\n) AS q"


def describe(session: Session, query: str) -> tuple[Column, ...]:
    """
    Return the columns of *query*, without a row of it.

    Raises:
        SparkError: PostgreSQL does not take it.
        SparkOptionError: A column has no name, or the name of another one, or a type
            that Spark does not have.
    """
    columns: list[Column] = []
    for field in session.schema(NO_ROW.format(query=query)):
        name = field.name
        if name == NAMELESS:
            raise SparkOptionError(
                f"Column {len(columns) + 1} of the query has no name: give it one with "
                f"AS."
            )
        if any(name.casefold() == column.name.casefold() for column in columns):
            raise SparkOptionError(
                f"The query has two columns named {name}: give one another name with "
                f"AS."
            )
        columns.append(Column(name, _type_of(field)))
    if not columns:
        raise SparkOptionError("The query has no column: select one at least.")
    return tuple(columns)


def check(text: str) -> str:
    """
    Return the query *text* without what ends it.

    Raises:
        SparkOptionError: It is empty, too long, or has a NUL.
    """
    query = text.strip().removesuffix(";").rstrip()
    if not query or "\0" in query or len(query) > CHARACTERS_MAX:
        raise SparkOptionError(
            f"The query has {len(query):,} characters; it must be a SELECT of up to "
            f"{CHARACTERS_MAX:,}, without NUL."
        )
    return query


def divide(
    session: Session,
    query: str,
    columns: Sequence[Column],
    divide_by: str,
    partitions: int | None,
) -> dict[str, Any]:
    """
    Return the ranges of *divide_by* that tasks read, as Spark's JDBC source takes them.

    There are *partitions* tasks, at most; None: by the rows that PostgreSQL expects.

    Raises:
        SparkOptionError: There is no such column, or it is of another type.
    """
    column = quoted(_whole(columns, divide_by).name)
    (ends,) = session.rows(ENDS.format(query=query, column=column))
    if ends["first"] is None:
        return {}
    if partitions is None:
        (explained,) = session.rows(EXPECTED.format(query=query), copies=False)
        (said,) = json.loads(next(iter(explained.values())))
        rows = int(said["Plan"]["Plan Rows"])
        partitions = min(1 + rows // ROWS_PER_PARTITION, DEFAULT_PARTITIONS_MAX)
    return {
        "column": divide_by,
        "lowerBound": ends["first"],
        "upperBound": ends["last"],
        "numPartitions": partitions,
    }


def read(session: Session, query: str, columns: Sequence[Column]) -> Any:
    """
    Return all rows of *query* as a pyarrow.Table, in the memory of this process.

    A numeric is text in it, which Spark casts.
    """
    statement = WHOLE_QUERY.format(
        columns=", ".join(column.sql_for_arrow for column in columns), query=query
    )
    batches = list(session.batches(statement))
    return arrow.Table.from_batches(
        batches, None if batches else session.schema(statement)
    )


def _type_of(field: Any) -> str:
    """Return the type of an Arrow field in Spark; raise SparkOptionError."""
    kind = OF_ARROW.get(str(field.type))
    if kind is not None:
        return kind
    told = field.metadata or {}
    name = (
        told.get(b"POSTGRESQL:type") or told.get(b"ADBC:postgresql:typname") or b""
    ).decode()
    if name in AS_TEXT:
        return "string"
    typmod = int(told.get(b"POSTGRESQL:typmod", b"-1"))
    if name == "numeric" and typmod >= 4:
        digits, scale = (typmod - 4) >> 16 & 0xFFFF, (typmod - 4) & 0x7FF
        if scale <= digits <= DIGITS_MAX:
            return f"decimal({digits},{scale})"
    raise SparkOptionError(
        f"Column {field.name} of the query is of the type {name or field.type}, which "
        f"Spark does not have: cast it in the query, to "
        f"{'numeric(12,2), say' if name == 'numeric' else 'text, say'}."
    )


def _whole(columns: Sequence[Column], name: str) -> Column:
    found = next((column for column in columns if column.name == name), None)
    if found is None:
        known = [column.name for column in columns]
        raise SparkOptionError(
            f"divide_by names {name!r}, which is no column of the query."
            f"{did_you_mean(name, known)} Its columns are {', '.join(known)}."
        )
    if found.type not in WHOLE:
        raise SparkOptionError(
            f"divide_by names {name!r}, of the type {found.type}; it must be "
            f"a column of whole numbers: smallint, integer or bigint."
        )
    return found
