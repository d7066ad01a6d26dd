"""
Rows: the batches of a day, from the archive or from its files, and their sums.

Whoever takes them to their end knows how many there were and their checksum. Those of
the archive come with PostgreSQL's own sum of each row, in the statement that reads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from django_pgqueue.extras import extra
from django_pgqueue.pipeline import exports
from django_pgqueue.pipeline.exports import Content, Details, Files
from django_pgqueue.spark import options
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.dsn import DEFAULT_VARIABLE
from django_pgqueue.spark.export.place import DayRefused, Place
from django_pgqueue.spark.export.sums import PREFIX, Sums
from django_pgqueue.spark.reader import arrow_schema, read
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.slices import Slice
from django_pgqueue.spark.tables import ARCHIVE, Column

# PostgreSQL's sum of a row, which is read with it.
ROW_SUM = Column("row_sum", "bigint", expression=exports.ROW_SUM)

# Locks: ACCESS SHARE on one day, for the two ends of its primary key.
ENDS = "SELECT min(id) AS first, max(id) AS last FROM {table}"


class ArchiveDay:
    """
    The rows of a closed day of the archive, without secrets, at the run's pace.

    Its *table* is as exports.ended_days() returns it.
    """

    def __init__(self, run: Run, table: str) -> None:
        self._run = run
        self._table = table
        self.schema = arrow_schema(ARCHIVE.columns)
        self.sums = Sums()
        self.content = Content(0, exports.checksum_of(0))

    def batches(self) -> Iterator[Any]:
        """
        Yield them.

        Raises:
            DayRefused: The primary has another number of rows than were read.
        """
        asked = options.parse({"table": ARCHIVE.name, **self._run.read_options})
        # One day is one table: no condition but ids.
        day = replace(ARCHIVE, relation=self._table, written_at=None)
        total = 0
        with Session(self._dsn(asked), table=ARCHIVE.name) as session:
            (ends,) = session.rows(ENDS.format(table=self._table))
            if ends["first"] is not None:
                for batch in read(
                    session,
                    day,
                    (*ARCHIVE.columns, ROW_SUM),
                    [Slice(ends["first"], ends["last"])],
                    redaction=asked.redaction(self._run.redaction),
                    rows_per_second=asked.rows_per_second_max,
                ):
                    self._run.check()
                    total += _sum(batch.column(ROW_SUM.name))
                    rows = batch.drop_columns([ROW_SUM.name])
                    self.sums.add(rows)
                    self._run.rows_in += rows.num_rows
                    yield rows
        with self._run.reading() as cursor:
            there = exports.count(cursor, self._table)
        if there != self.sums.rows:
            raise DayRefused(
                f"Rows differ: PostgreSQL has {there:,}, and {self.sums.rows:,} were "
                f"read from it."
            )
        self.content = Content(there, exports.checksum_of(total))

    def _dsn(self, asked: options.ReadOptions) -> str:
        given = asked.dsn
        if given.file is None and given.variable == DEFAULT_VARIABLE:
            return os.environ.get(DEFAULT_VARIABLE) or str(self._run.dsn)
        return given.read(os.environ)


@dataclass
class Rewritten:
    """
    The rows of files that are written once more, as they are, or but for some.

    Attributes:
        schema: What they are written with; a column that a file lacks is NULL.
        given: The batches of the files.
        kept: Returns what stays of a batch; None: all.
        rows_read: How many the files had.
    """

    run: Run
    schema: Any
    given: Iterable[Any]
    kept: Callable[[Any], Any] | None = None
    sums: Sums = field(default_factory=Sums, init=False)
    rows_read: int = field(default=0, init=False)

    def batches(self) -> Iterator[Any]:
        """Yield what is kept of them."""
        for batch in self.given:
            self.run.check()
            self.rows_read += batch.num_rows
            self.run.rows_in += batch.num_rows
            rows = batch if self.kept is None else self.kept(batch)
            if rows.num_rows:
                self.sums.add(rows)
                yield of_schema(rows, self.schema)


def of_files(
    run: Run,
    place: Place,
    day: date,
    files: Files,
    details: Details,
    kept: Callable[[Any], Any] | None = None,
) -> Rewritten:
    """
    Return the rows of some files of a day, or of all that its manifest lists.

    To take them raises DayRefused where they are other rows than the manifest says.
    """
    given = _as_listed(place.rows(day, files), files, details)
    return Rewritten(run, place.schema(files), given, kept)


def _as_listed(batches: Iterable[Any], files: Files, details: Details) -> Iterator[Any]:
    """Yield *batches*; raise DayRefused where the manifest says otherwise."""
    read = Sums()
    for batch in batches:
        read.add(batch)
        yield batch
    is_all = len(files) == len(details.files)
    if is_all:
        expected = details.found.rows
    elif all("rows" in file for file in files):
        expected = sum(int(file["rows"]) for file in files)
    else:
        return  # Of a release before, which did not count each file.
    if read.rows != expected:
        raise DayRefused(
            f"The files have {read.rows:,} rows, and the manifest says {expected:,}."
        )
    content = details.content or ""
    if is_all and content.startswith(PREFIX) and content != read.content:
        raise DayRefused(
            f"The files have the checksum {read.content}, and the manifest says "
            f"{content}."
        )


def of_schema(batch: Any, schema: Any) -> Any:
    """Return *batch* with the columns of *schema*; what it lacks is NULL."""
    arrow = extra("pyarrow")
    names = set(batch.schema.names)
    arrays = [
        batch.column(field.name).cast(field.type)
        if field.name in names
        else arrow.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return arrow.RecordBatch.from_arrays(arrays, schema=schema)


def _sum(numbers: Any) -> int:
    """Return the sum of signed numbers of 64 bits, which may have more."""
    numpy = extra("numpy")
    values = numbers.to_numpy(zero_copy_only=False)
    low = int((values & numpy.int64(0xFFFFFFFF)).sum())
    return low + (int((values >> numpy.int64(32)).sum()) << 32)
