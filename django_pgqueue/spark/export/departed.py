"""Departed: days that retention has dropped from the archive, read in their export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.pipeline.exports import Departed
from django_pgqueue.spark.export.day import PLACES
from django_pgqueue.spark.export.rows import of_schema
from django_pgqueue.spark.reader import arrow_schema
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.tables import ARCHIVE


def batches_of(run: Run, day: Departed, columns: Sequence[str]) -> Iterator[Any]:
    """
    Yield the rows of such a day as pyarrow.RecordBatch with just these columns.

    Raises:
        SparkError: The day is not where it was exported to.
    """
    if not day.rows:
        return
    place = PLACES[day.format](run, day.target)
    files = place.look(day.day, day.files, day.rows)
    if files is None:
        raise SparkError(
            f"{day.day}, which was exported to {day.target}, cannot be read there: "
            f"files of it are gone. Put it back, or leave it out by a shorter lookback "
            f"or keep."
        )
    by_name = {column.name: column for column in ARCHIVE.columns}
    schema = arrow_schema(tuple(by_name[name] for name in columns))
    for batch in place.rows(day.day, files, columns):
        run.check()
        yield of_schema(batch, schema)
