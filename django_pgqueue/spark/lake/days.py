"""
Days: those of the archive, as they are read from it and as the lake has them.

What identifies the rows of a day is summed up by PostgreSQL, wherever they are: see
pipeline/exports.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import chain
from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.extras import arrow, compute, extra
from django_pgqueue.pipeline import exports
from django_pgqueue.pipeline.exports import IDENTITY, Content, Departed
from django_pgqueue.spark import options
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.lake.table import DAY, FILE_MB, LakeTable
from django_pgqueue.spark.reader import arrow_schema, read
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.slices import Slice
from django_pgqueue.spark.tables import ARCHIVE, Column

# Of two commits that name it and follow from one version, Delta refuses the second.
APPLICATION = "django_pgqueue.export"

# PostgreSQL's sum of a row, which is read with it.
ROW_SUM = Column("row_sum", "bigint", expression=exports.ROW_SUM)

# Locks: ACCESS SHARE on one day, for the two ends of its primary key.
ENDS = "SELECT min(id) AS first, max(id) AS last FROM {table}"


class DayRefused(SparkError):
    """A day cannot be written or read, and is left as it is; others may be."""


class Unfinished(SparkError):
    """Some days were refused; *problems* says why, by day, or by place."""

    def __init__(self, problems: Mapping[Any, str], rows: int, what: str) -> None:
        told = " ".join(f"{day}: {problems[day]}" for day in sorted(problems))
        super().__init__(f"Of others, {rows:,} rows were {what}; not of these. {told}")


class ArchiveDay:
    """
    The rows of a closed day of the archive, without secrets, at the run's pace.

    Its *table* is as exports.ended_days() returns it.
    """

    def __init__(self, run: Run, table: str) -> None:
        self._run = run
        self._table = table
        self.content = Content(0, exports.checksum_of(0))

    def batches(self) -> Iterator[Any]:
        """
        Yield them, as pyarrow.RecordBatch; then `content` is theirs.

        Raises:
            DayRefused: The primary has another number of rows than were read.
        """
        asked = options.parse({"table": ARCHIVE.name, **self._run.read_options})
        # One day is one table: no condition but ids.
        day = replace(ARCHIVE, relation=self._table, written_at=None)
        rows = total = 0
        with Session(self._run.read_dsn(), table=ARCHIVE.name) as session:
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
                    rows += batch.num_rows
                    self._run.rows_in += batch.num_rows
                    yield batch.drop_columns([ROW_SUM.name])
        with self._run.reading() as cursor:
            there = exports.count(cursor, self._table)
        if there != rows:
            raise DayRefused(
                f"Rows differ: PostgreSQL has {there:,}, and {rows:,} were read from "
                f"it."
            )
        self.content = Content(rows, exports.checksum_of(total))


def replace_day(lake: LakeTable, table: Any, day: date, rows: ArchiveDay) -> None:
    """
    Let a day have just these *rows*, by one commit, which follows from *table*.

    Raises:
        LakeTable.refused: Another commit was quicker.
    """
    properties = lake.commit_properties({APPLICATION: lake.run.id})
    of_day = f"{DAY} = '{day}'"
    problems: list[Exception] = []
    batches = _telling(rows.batches(), problems)
    first = next(batches, None)
    if first is None:
        if day in lake.rows_by_day():
            table.delete(of_day, commit_properties=properties)
        return
    given = (_with_day(batch, day) for batch in chain([first], batches))
    try:
        extra("deltalake").write_deltalake(
            table,
            arrow.RecordBatchReader.from_batches(day_schema(), given),
            mode="overwrite",
            predicate=of_day,
            schema_mode="merge",
            target_file_size=FILE_MB * 2**20,
            commit_properties=properties,
        )
    except Exception:
        # Through Arrow, an error of ours comes as a text.
        if problems:
            raise problems[0] from None
        raise


def day_schema() -> Any:
    """Return the columns of a table of days."""
    return arrow_schema(ARCHIVE.columns).append(arrow.field(DAY, arrow.date32()))


def content_of(run: Run, lake: LakeTable, day: date) -> Content:
    """
    Return what the lake has of a day, as PostgreSQL sums it up.

    Raises:
        DayRefused: It cannot be read.
    """
    try:
        with run.reading() as cursor:
            return exports.content_of(
                cursor, as_csv(lake.batches(day, IDENTITY.split(", ")))
            )
    except (OSError, ValueError) as error:
        raise DayRefused(f"It cannot be read: {error}") from None


def departed_batches(run: Run, day: Departed, columns: Sequence[str]) -> Iterator[Any]:
    """
    Yield the rows of a day that the lake alone has.

    Raises:
        SparkError: It is not where it was exported to.
    """
    if not day.rows:
        return
    lake = LakeTable(run, day.target)
    lake.latest()
    problem = "the table has no row of it"
    if day.day in lake.rows_by_day():
        try:
            yield from lake.batches(day.day, columns)
            return
        except (OSError, ValueError) as error:
            problem = str(error)
    raise SparkError(
        f"{day.day}, which was exported to {day.target}, cannot be read there: "
        f"{problem}. Put it back, or leave it out by a shorter lookback or keep."
    )


def as_csv(batches: Iterable[Any]) -> Iterator[bytes]:
    """Yield the rows of batches as COPY takes them."""
    csv = extra("pyarrow.csv")
    for batch in batches:
        text = arrow.BufferOutputStream()
        # Times without their zone, which is that of run.reading(), UTC: to write it,
        # Arrow would look it up in files that not every host has.
        plain = [
            column.cast(arrow.timestamp("us"))
            if arrow.types.is_timestamp(column.type)
            else column
            for column in batch.columns
        ]
        rows = arrow.RecordBatch.from_arrays(plain, batch.schema.names)
        csv.write_csv(rows, text, csv.WriteOptions(include_header=False))
        yield text.getvalue().to_pybytes()


def _telling(batches: Iterator[Any], problems: list[Exception]) -> Iterator[Any]:
    """Yield *batches*; what goes wrong is noted in *problems* as well."""
    try:
        yield from batches
    except Exception as error:
        problems.append(error)
        raise


def _with_day(batch: Any, day: date) -> Any:
    days = arrow.repeat(arrow.scalar(day, arrow.date32()), batch.num_rows)
    return batch.append_column(DAY, days)


def _sum(numbers: Any) -> int:
    """Return the sum of signed numbers of 64 bits, which may have more."""
    wide = numbers.cast(arrow.decimal128(19))
    return int(compute.sum(wide).as_py() or 0)
