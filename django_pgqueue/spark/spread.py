"""
Spread: the moment of each row within a window, from its key alone.

The offset is that of timetable/offset.py, whatever the version of Spark and however
the rows are divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django_pgqueue.exceptions import SparkOptionError, did_you_mean
from django_pgqueue.extras import extra
from django_pgqueue.spark.option_table import duration
from django_pgqueue.timetable.offset import (
    DIGITS,
    KEY_VALUES_MAX,
    MICROSECOND,
    OVER_DAYS_MAX,
    SEPARATOR,
)

# Types of which every value has one text, whatever file or table it comes from.
KEY_TYPES = ("string", "tinyint", "smallint", "int", "bigint", "date", "boolean")


def offset_column(task: str, key: Sequence[str], over: timedelta) -> Any:
    """Return the same as a Column of Spark: microseconds, a bigint."""
    f = extra("pyspark.sql.functions")
    texts = [column(name).cast("string") for name in key]
    digest = f.sha2(f.concat_ws(SEPARATOR, f.lit(task), *texts), 256)
    number = f.conv(f.substring(digest, 1, DIGITS), 16, 10).cast("bigint")
    return f.pmod(number, f.lit(over // MICROSECOND))


def column(name: str) -> Any:
    """Return the column that is called exactly *name*, dots and all."""
    escaped = name.replace("`", "``")
    return extra("pyspark.sql.functions").col(f"`{escaped}`")


def window(text: str) -> timedelta:
    """
    Return the window that the option *over* says.

    Raises:
        SparkOptionError: It is none, or empty, or longer than OVER_DAYS_MAX.
    """
    over = duration("over", text)
    if not timedelta() < over <= timedelta(days=OVER_DAYS_MAX):
        raise SparkOptionError(
            f"The option over is {text!r}; it must be more than nothing and at most "
            f"{OVER_DAYS_MAX} days. Without it, all jobs are due at the start."
        )
    return over


def key_columns(text: str, option: str = "key") -> tuple[str, ...]:
    """
    Return the columns that an option names, with commas between.

    Raises:
        SparkOptionError: None, one twice, or more than KEY_VALUES_MAX.
    """
    names = tuple(name.strip() for name in text.split(","))
    if "" in names or len(set(names)) < len(names) or len(names) > KEY_VALUES_MAX:
        raise SparkOptionError(
            f"The option {option} is {text[:80]!r}; it must name 1 to {KEY_VALUES_MAX} "
            f"columns, each once, with commas between."
        )
    return names


def check_key(schema: Any, key: Sequence[str]) -> None:
    """Raise SparkOptionError unless the columns *key* can be one."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name in key:
        if name not in types:
            raise SparkOptionError(
                f"The key {name!r} is no column.{did_you_mean(name, list(types))} The "
                f"columns are {', '.join(types)}."
            )
        if types[name] not in KEY_TYPES:
            raise SparkOptionError(
                f"The key {name!r} is of the type {types[name]}; it must be one of "
                f"{', '.join(KEY_TYPES)}: cast it to a string."
            )
