"""
Filters: the conditions that PostgreSQL and Spark answer alike, as SQL.

Left to Spark is whatever the two see differently, or what they would not see in the
same thing: the order of texts, which is the collation's in PostgreSQL and that of bytes
in Spark; and columns with secrets, where PostgreSQL would compare what Spark is never
shown, so that a condition could guess at a password.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django_pgqueue.spark.tables import Column, Table

# Texts of one IN; a longer list is Spark's to look through.
IN_VALUES_MAX = 10_000

WHOLE = {"bigint", "int", "smallint"}

# bigint's. A number beyond it would make PostgreSQL compare as numeric.
NUMBER_MIN, NUMBER_MAX = -(2**63), 2**63 - 1

# A moment after this one is no bound: one more microsecond may be none of Python's.
PERIOD_MAX = datetime(9000, 1, 1, tzinfo=UTC)

COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "IS NOT DISTINCT FROM",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
EQUALITIES = {"EqualTo", "EqualNullSafe"}
PRESENCES = {"IsNull": "IS NULL", "IsNotNull": "IS NOT NULL"}


def divide(filters: Iterable[Any], table: Table) -> tuple[list[str], list[Any]]:
    """
    Return conditions in SQL, and the filters that Spark must answer itself.

    Args:
        filters: Instances of pyspark.sql.datasource.Filter, all of which must hold.
        table: Whose columns they are about.
    """
    conditions, left = [], []
    for each in filters:
        condition = as_sql(each, table)
        if condition is None:
            left.append(each)
        else:
            conditions.append(condition)
    return conditions, left


def as_sql(condition: Any, table: Table) -> str | None:
    """Return one filter in SQL, or None where the two might answer differently."""
    kind = type(condition).__name__
    if kind == "Not":
        inner = as_sql(condition.child, table)
        # NULL stays NULL in both, and neither takes such a row.
        return None if inner is None else f"NOT ({inner})"
    column = _column(condition, table)
    if column is None:
        return None
    if kind in PRESENCES:
        return f"{column.name} {PRESENCES[kind]}"
    if column.is_json:
        return None
    if kind == "In":
        return _in(column, condition.value)
    if kind == "StringStartsWith" and column.type == "string":
        prefix = literal(column, condition.value)
        # starts_with() compares bytes, whatever the collation.
        return prefix and f"starts_with({column.name}, {prefix})"
    if kind not in COMPARISONS:
        return None
    if column.type == "string" and kind not in EQUALITIES:
        return None
    value = literal(column, condition.value)
    return value and f"{column.name} {COMPARISONS[kind]} {value}"


def literal(column: Column, value: Any) -> str | None:
    """Return *value* as SQL of the column's type, or None if it is of another one."""
    if column.type in WHOLE:
        return _LITERALS["bigint"](value)
    # A fraction has more than one text: Spark compares those itself.
    of_type = _LITERALS.get(column.type)
    return None if of_type is None else of_type(value)


@dataclass(frozen=True, slots=True)
class Period:
    """When the rows that are asked for were written: since <= t < until."""

    since: datetime | None = None
    until: datetime | None = None


def period(filters: Iterable[Any], table: Table) -> Period:
    """
    Return the period that *filters* leave of Table.written_at, rounded up.

    It spares tasks for days that have no row; the conditions hold all the same.
    """
    earliest: list[datetime] = []
    latest: list[datetime] = []
    for each in filters:
        value = getattr(each, "value", None)
        if getattr(each, "attribute", None) != (table.written_at,):
            continue
        if not isinstance(value, datetime) or _moment(value) is None:
            continue
        kind = type(each).__name__
        if kind in ("EqualTo", "GreaterThan", "GreaterThanOrEqual"):
            earliest.append(value)
        if kind in ("EqualTo", "LessThan", "LessThanOrEqual") and value < PERIOD_MAX:
            latest.append(value + timedelta(microseconds=1))
    return Period(max(earliest, default=None), min(latest, default=None))


def _column(condition: Any, table: Table) -> Column | None:
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    return table.column(path[0]) if len(path) == 1 else None


def _in(column: Column, values: Any) -> str | None:
    if not 0 < len(values) <= IN_VALUES_MAX:
        return None
    literals = [literal(column, value) for value in values]
    if None in literals:
        return None
    return f"{column.name} IN ({', '.join(filter(None, literals))})"


def _number(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return str(value) if NUMBER_MIN <= value <= NUMBER_MAX else None


def _boolean(value: Any) -> str | None:
    return str(value).lower() if isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    # No text of PostgreSQL has a NUL, nor half of a surrogate pair.
    if not isinstance(value, str) or "\0" in value:
        return None
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return None
    # E'' reads the same whatever standard_conforming_strings says.
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"


def _moment(value: Any) -> str | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return moment(value)


def moment(value: datetime) -> str:
    """Return a moment as a literal of timestamptz, in UTC."""
    utc = value.astimezone(UTC).isoformat(sep=" ", timespec="microseconds")
    return f"'{utc}'::timestamptz"


_LITERALS: dict[str, Callable[[Any], str | None]] = {
    "bigint": _number,
    "boolean": _boolean,
    "string": _text,
    "timestamp": _moment,
}
