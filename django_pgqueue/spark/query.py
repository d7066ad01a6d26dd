"""
Query: the rows of an SQL query, as Arrow batches.

A query is one SELECT. It runs in a read-only session, as the database's role may, and
its columns say what Spark gets. Undivided it is one statement of one task, with one
snapshot; divided by a whole-number column it is many short ones, each with its own.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from django_pgqueue.exceptions import SparkOptionError, did_you_mean
from django_pgqueue.extras import extra
from django_pgqueue.spark.pace import PAGE_BYTES_MAX, PAGE_ROWS_MAX, Pace
from django_pgqueue.spark.slices import DEFAULT_PARTITIONS_MAX

# Rows of a divided query that make one more task, unless the option partitions says.
ROWS_PER_PARTITION = 250_000

# Statements of one divided query, however many rows are expected.
READS_MAX = 10_000

# Arrow's types as the driver gives them, in Spark's words.
OF_ARROW = {
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "bool": "boolean",
    "string": "string",
    "binary": "binary",
    "date32[day]": "date",
    "timestamp[us, tz=UTC]": "timestamp",
    "timestamp[us]": "timestamp_ntz",
}

# Types of PostgreSQL that travel as text.
AS_TEXT = {"uuid", "json", "jsonb"}

# Spark's types, and what each is in PostgreSQL: columns are cast, so that a driver
# never guesses.
SQL_TYPES = {
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "boolean": "boolean",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
WHOLE = {"smallint", "int", "bigint"}

DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
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


@dataclass(frozen=True, slots=True)
class QueryColumn:
    """One column of a query: its name, and its type in Spark."""

    name: str
    type: str

    @property
    def sql(self) -> str:
        """How it is selected."""
        name = quoted(self.name)
        found = DECIMAL.fullmatch(self.type)
        if found is not None:
            # As text: the driver has no type for it, and Arrow reads the digits.
            return f"{name}::numeric({found[1]},{found[2]})::text AS {name}"
        return f"{name}::{SQL_TYPES[self.type]} AS {name}"


def describe(session: Any, query: str) -> tuple[QueryColumn, ...]:
    """
    Return the columns of *query*, without a row of it.

    Args:
        session: A spark.connect.Session.
        query: A SELECT.

    Raises:
        SparkError: PostgreSQL does not take it.
        SparkOptionError: A column has no name, or the name of another one, or a type
            that Spark does not have.
    """
    columns: list[QueryColumn] = []
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
        columns.append(QueryColumn(name, _type_of(field)))
    if not columns:
        raise SparkOptionError("The query has no column: select one at least.")
    return tuple(columns)


def ddl(columns: Sequence[QueryColumn]) -> str:
    """Return *columns* as Spark writes a schema, names in backticks."""
    return ", ".join(
        f"`{column.name.replace('`', '``')}` {column.type}" for column in columns
    )


def columns_of(schema: Any) -> tuple[QueryColumn, ...]:
    """
    Return the columns that a schema of Spark asks for, which are cast to its types.

    Raises:
        SparkOptionError: A type that no query has.
    """
    columns = []
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if kind not in SQL_TYPES and not DECIMAL.fullmatch(kind):
            raise SparkOptionError(
                f"Column {field.name} of the query is asked for as {kind}; it can be "
                f"one of {', '.join(SQL_TYPES)} and decimal(p,s)."
            )
        if not field.nullable:
            raise SparkOptionError(
                f"Column {field.name} is declared NOT NULL in .schema(…): every column "
                f"that is read may be NULL; leave NOT NULL out."
            )
        columns.append(QueryColumn(field.name, kind))
    return tuple(columns)


def plan(
    session: Any,
    query: str,
    *,
    divide_by: str | None,
    partitions: int | None,
) -> list[tuple[str, ...]]:
    """
    Divide *query* among tasks: for each one, the conditions of its statements.

    Args:
        session: A spark.connect.Session.
        query: A SELECT.
        divide_by: A whole-number column of it; None: one task reads it at once.
        partitions: Tasks, at most; None: by the rows that PostgreSQL expects.

    Raises:
        SparkOptionError: There is no such column, or it is of another type.
    """
    if divide_by is None:
        return [("",)]
    column = quoted(_whole(describe(session, query), divide_by).name)
    (ends,) = session.rows(ENDS.format(query=query, column=column))
    (explained,) = session.rows(EXPECTED.format(query=query), copies=False)
    (said,) = json.loads(next(iter(explained.values())))
    rows = int(said["Plan"]["Plan Rows"])
    if partitions is None:
        partitions = min(1 + rows // ROWS_PER_PARTITION, DEFAULT_PARTITIONS_MAX)
    # Rows without a value are in no range.
    conditions = [f"{column} IS NULL"]
    if ends["first"] is not None:
        reads = max(partitions, min(1 + rows // PAGE_ROWS_MAX, READS_MAX))
        conditions += [
            f"{column} BETWEEN {first} AND {last}"
            for first, last in cut(ends["first"], ends["last"], reads)
        ]
    tasks = min(partitions, len(conditions))
    bounds = [len(conditions) * task // tasks for task in range(tasks + 1)]
    return [tuple(conditions[start:end]) for start, end in pairwise(bounds)]


def cut(first: int, last: int, parts: int) -> list[tuple[int, int]]:
    """Cut the numbers from *first* to *last* into up to *parts* ranges."""
    numbers = last - first + 1
    parts = min(parts, numbers)
    starts = [first + numbers * part // parts for part in range(parts)]
    return list(zip(starts, [start - 1 for start in starts[1:]] + [last], strict=True))


def read(
    session: Any,
    query: str,
    columns: Sequence[QueryColumn],
    task: Sequence[str],
    *,
    rows_per_second: float | None,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[Any]:
    """
    Yield the rows of *task* as pyarrow.RecordBatch.

    A statement of up to PAGE_BYTES_MAX is fetched to its end before Spark gets the
    first batch of it, so that no snapshot waits for Spark.

    Args:
        session: A spark.connect.Session.
        query: A SELECT.
        columns: What Spark gets, in this order.
        task: The conditions of its statements; "": all rows.
        rows_per_second: Of this task; None: no limit.
        wait: Called with the seconds until the next statement may be sent.
    """
    schema = _schema(columns)
    selected = WHOLE_QUERY.format(
        columns=", ".join(column.sql for column in columns), query=query
    )
    pace = Pace(rows_per_second)
    for condition in task:
        statement = f"{selected} WHERE {condition}" if condition else selected
        held: list[Any] = []
        rows = size = 0
        for batch in session.batches(statement):
            if batch.num_rows == 0:
                continue
            rows += batch.num_rows
            size += batch.nbytes
            held.append(_shaped(batch, schema))
            if size > PAGE_BYTES_MAX:
                yield from held
                held = []
        pause = pace.took(rows)
        yield from held
        if pause > 0:
            wait(pause)


def quoted(name: str) -> str:
    """Return *name* as an identifier of SQL."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


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


def _whole(columns: Sequence[QueryColumn], name: str) -> QueryColumn:
    found = next((column for column in columns if column.name == name), None)
    if found is None:
        known = [column.name for column in columns]
        raise SparkOptionError(
            f"The option divideBy names {name!r}, which is no column of the query."
            f"{did_you_mean(name, known)} Its columns are {', '.join(known)}."
        )
    if found.type not in WHOLE:
        raise SparkOptionError(
            f"The option divideBy names {name!r}, of the type {found.type}; it must be "
            f"a column of whole numbers: smallint, integer or bigint."
        )
    return found


def _schema(columns: Sequence[QueryColumn]) -> Any:
    """Return the Arrow schema that Spark expects for *columns*, to the letter."""
    arrow = extra("pyarrow")
    types = {
        "smallint": arrow.int16(),
        "int": arrow.int32(),
        "bigint": arrow.int64(),
        "float": arrow.float32(),
        "double": arrow.float64(),
        "boolean": arrow.bool_(),
        "string": arrow.string(),
        "binary": arrow.binary(),
        "date": arrow.date32(),
        "timestamp": arrow.timestamp("us", tz="UTC"),
        "timestamp_ntz": arrow.timestamp("us"),
    }
    fields = []
    for column in columns:
        found = DECIMAL.fullmatch(column.type)
        kind = (
            types[column.type]
            if found is None
            else arrow.decimal128(int(found[1]), int(found[2]))
        )
        fields.append((column.name, kind))
    return arrow.schema(fields)


def _shaped(batch: Any, schema: Any) -> Any:
    """Return *batch* as Spark wants it."""
    arrays = [
        values.cast(field.type) if _is_decimal(field.type) else values
        for values, field in zip(batch.columns, schema, strict=True)
    ]
    return extra("pyarrow").RecordBatch.from_arrays(arrays, schema=schema)


def _is_decimal(kind: Any) -> bool:
    return bool(extra("pyarrow").types.is_decimal(kind))
