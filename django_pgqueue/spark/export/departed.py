"""
Departed: days that retention has dropped from the archive, read from their export.

A day is read from the archive as long as that has it, so no row comes twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.extras import extra
from django_pgqueue.pipeline import exports
from django_pgqueue.pipeline.exports import Departed
from django_pgqueue.spark.export.delta import actions_of
from django_pgqueue.spark.tables import ARCHIVE


def with_departed(
    run: Any, archive: Any, columns: Sequence[str], since: datetime
) -> Any:
    """
    Return the rows of the archive and those of days from *since* on that have left it.

    Args:
        run: A spark.run.Run.
        archive: A frame of *columns*.
        columns: Of the archive.
        since: Days before are left out.

    Raises:
        SparkError: An exported day is not where it was.
    """
    with run.reading() as cursor:
        days = exports.departed(cursor, first=since.date())
    schema = ", ".join(
        f"{c.name} {c.type}" for c in ARCHIVE.columns if c.name in columns
    )
    days.sort(key=lambda day: (day.target, day.format))
    for (target, form), group in groupby(days, lambda day: (day.target, day.format)):
        paths = [*_paths(target, form, [day for day in group if day.rows])]
        if not paths:
            continue
        reader = run.session.read.schema(schema).option("basePath", _for_spark(target))
        try:
            frame = reader.parquet(*map(_for_spark, paths))
        except Exception as error:
            told = str(error).splitlines()[0]
            raise SparkError(
                f"Days that were exported to {target} cannot be read there: {told} "
                f"Put them back, or leave them out by the option keep."
            ) from None
        archive = archive.unionByName(frame.select(*columns))
    return archive


def _paths(target: str, form: str, days: list[Departed]) -> Iterator[str]:
    """Return the files that manifests list, or of a Delta table its present ones."""
    if form == "parquet":
        yield from (f"{target}/{file['path']}" for day in days for file in day.files)
    elif days:
        table = extra("deltalake").DeltaTable(target)
        wanted = {day.day for day in days}
        for row in actions_of(table):
            if row["partition.day"] in wanted:
                yield f"{target}/{row['path']}"


def _for_spark(path: str) -> str:
    # What deltalake calls s3, Hadoop calls s3a.
    return f"s3a{path[2:]}" if path.startswith("s3:") else path
