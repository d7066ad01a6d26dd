"""Departed: days that retention has dropped from the archive, read in their export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.extras import extra
from django_pgqueue.pipeline.exports import Departed
from django_pgqueue.spark.export.delta import actions_of
from django_pgqueue.spark.export.store import for_spark
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.tables import ARCHIVE, ddl

# A time with its offset: a row of Spark has the local time of this process, in which,
# when summer time ends, an hour happens twice.
TIME = "yyyy-MM-dd HH:mm:ss.SSSSSSXXX"


def frame_of(run: Run, day: Departed, columns: Sequence[str]) -> Any:
    """
    Return the rows of a day that has left the archive, and has some, as a DataFrame.

    Raises:
        SparkError: The day is not where it was exported to.
    """
    schema = ddl(tuple(c for c in ARCHIVE.columns if c.name in columns))
    base = for_spark(day.target)
    reader = run.session.read.schema(schema).option("basePath", base)
    try:
        frame = reader.parquet(*map(for_spark, _paths(day)))
    except Exception as error:
        told = str(error).splitlines()[0]
        raise SparkError(
            f"{day.day}, which was exported to {day.target}, cannot be read there: "
            f"{told} Put it back, or leave it out by the option keep."
        ) from None
    return frame.select(*columns)


def rows_of(
    run: Run, day: Departed, columns: Sequence[str], *, in_order_of: str
) -> Iterator[Sequence[Any]]:
    """
    Yield the rows of such a day in the order of a column, with times as texts.

    Raises:
        SparkError: The day is not where it was exported to.
    """
    if not day.rows:
        return
    f = extra("pyspark.sql.functions")
    frame = frame_of(run, day, columns).sort(in_order_of)
    types = dict(frame.dtypes)
    yield from frame.select(
        *(
            f.date_format(name, TIME) if types[name] == "timestamp" else f.col(name)
            for name in columns
        )
    ).toLocalIterator()


def _paths(day: Departed) -> Iterator[str]:
    """Return the files that the manifest lists, or of a Delta table those it has."""
    if day.format == "parquet":
        yield from (f"{day.target}/{file['path']}" for file in day.files)
        return
    for row in actions_of(extra("deltalake").DeltaTable(day.target)):
        if row["partition.day"] == day.day:
            yield f"{day.target}/{row['path']}"
