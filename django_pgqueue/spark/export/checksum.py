"""
Checksum: what is compared between PostgreSQL, what Spark has read, and the files.

Each is a sum over rows, so that their order does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django_pgqueue.extras import extra
from django_pgqueue.pipeline.exports import Content
from django_pgqueue.spark.tables import ARCHIVE

COLUMNS = tuple(column.name for column in ARCHIVE.columns)

# What identifies a row and never changes, as in runs.exports.CONTENT.
IDENTITY = (
    "id",
    "queue",
    "task",
    "state",
    "attempt",
    "deliveries",
    "enqueued_at",
    "finished_at",
)

# As in runs.exports.CONTENT: hexadecimal digits of each row's hash that are summed up.
DIGITS = 15


def sums() -> list[Any]:
    """Return the columns `rows`, `checksum` and `content`, over a frame of COLUMNS."""
    f = extra("pyspark.sql.functions")
    types = {column.name: column.type for column in ARCHIVE.columns}
    identity = f.concat_ws(
        "|",
        *(
            (f.unix_micros(name) if types[name] == "timestamp" else f.col(name)).cast(
                "string"
            )
            for name in IDENTITY
        ),
    )
    of_row = f.conv(f.substring(f.sha2(identity, 256), 1, DIGITS), 16, 10)
    return [
        f.count(f.lit(1)).alias("rows"),
        _sum(of_row).alias("checksum"),
        _sum(f.xxhash64(*COLUMNS)).alias("content"),
    ]


def _sum(of_row: Any) -> Any:
    f = extra("pyspark.sql.functions")
    return f.coalesce(f.sum(of_row.cast("decimal(20,0)")), f.lit(0)).cast("string")


def content_of(row: Any) -> Content:
    """Return what a row, or a dict, with the values of sums() says."""
    return Content(int(row["rows"]), str(row["checksum"]))


def differences(named: Iterable[tuple[str, object]]) -> str:
    """Return "PostgreSQL has 3, the files have 2", or "" if all are equal."""
    pairs = list(named)
    if len({value for _, value in pairs}) == 1:
        return ""
    return ", ".join(f"{name}: {value}" for name, value in pairs)
