"""
Delta: a table of Delta Lake, partitioned by day and queue, written by `deltalake`.

It needs no jar: the driver fetches Arrow batches from the executors, a part of the day
at a time, and hands them to the writer as they come. A commit replaces the day as a
whole; one that breaks off, for whatever reason, leaves files that
belong to no version, which VACUUM removes.

A commit follows from the version that the table had while this run was known to be
live. Each commit names the export's application; so once a later run has committed
anything, that of a run which was paused is refused by Delta.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from hashlib import sha256
from itertools import chain, pairwise
from math import ceil
from typing import Any

from django_pgqueue.extras import extra
from django_pgqueue.pipeline.exports import Content, Files
from django_pgqueue.spark.export.checksum import COLUMNS, IDENTITY, differences
from django_pgqueue.spark.export.place import DayRefused, Published

# Of two commits that name it and follow from one version, Delta refuses the second.
APPLICATION = "django_pgqueue.export"

# What is in the driver's memory at a time: rows, and bytes as PostgreSQL stores them.
PART_ROWS_MAX = 50_000
PART_BYTES_MAX = 33_554_432


class DeltaPlace:
    """A Delta table, of any file system that deltalake knows."""

    def __init__(self, run: Any, target: str) -> None:
        self._run = run
        self._target = target
        self._delta = extra("deltalake")
        self._frame: Any = None
        self._table: Any = None
        self._expected = Content(0, "0")
        self._parts = 1

    def clear(self) -> None:
        """Do nothing: files of no version are VACUUM's."""

    def leave(self) -> None:
        """Do nothing, as clear()."""

    def has(self, day: date) -> bool:
        """Whether the table has files of the day."""
        table = self._found()
        return table is not None and bool(_of_day(table, day))

    def write(self, day: date, frame: Any, expected: Content, size: int) -> None:
        """Remember *frame* and the table's version: publish() writes in one step."""
        self._table = self._as_it_is(frame) if expected.rows else self._found()
        self._frame, self._expected = frame, expected
        self._parts = max(
            ceil(expected.rows / PART_ROWS_MAX), ceil(size / PART_BYTES_MAX), 1
        )

    def publish(self, day: date) -> Published:
        """Replace the day, unless what is read differs; read it again, and compare."""
        if not self._expected.rows:
            version = self._take_away(day)
            return Published("", [], version)
        arrow = extra("pyarrow")
        read = _Sums()
        batches = self._batches(read)
        first = next(batches, None)
        if first is None:
            raise self._differs([("read from it", read.content())])
        stream = arrow.RecordBatchReader.from_batches(
            _with_day(first, day).schema,
            (_with_day(batch, day) for batch in chain([first], batches)),
        )
        try:
            self._delta.write_deltalake(
                self._table,
                stream,
                mode="overwrite",
                predicate=f"day = '{day}'",
                partition_by=["day", "queue"],
                commit_properties=self._commit(day),
            )
        except Exception:
            self._run.check()
            # Through Arrow, an error of ours comes as a text.
            if read.is_complete and read.content() != self._expected:
                raise self._differs([("read from it", read.content())]) from None
            raise
        return self._read_again(day, read)

    def _batches(self, read: _Sums) -> Iterator[Any]:
        """Yield what executors read, and break off if it is not what was expected."""
        f = extra("pyspark.sql.functions")
        frame = self._frame.select(*COLUMNS)
        ends = [None, *self._cuts(), None]
        for after, last in pairwise(ends):
            self._run.check()
            part = frame if after is None else frame.where(f.col("id") > after)
            part = part if last is None else part.where(f.col("id") <= last)
            for batch in part.toArrow().to_batches():
                read.add(batch)
                yield batch
        read.is_complete = True
        if read.content() != self._expected:
            raise self._differs([("read from it", read.content())])

    def _cuts(self) -> list[int]:
        """Return ids that cut the day into parts of about as many rows."""
        f = extra("pyspark.sql.functions")
        if self._parts == 1:
            return []
        marks = f.array(*(f.lit(n / self._parts) for n in range(1, self._parts)))
        (found,) = self._frame.agg(f.percentile_approx("id", marks)).first()
        return sorted(set(found or ()))

    def _read_again(self, day: date, read: _Sums) -> Published:
        table = self._delta.DeltaTable(self._target)
        there = _Sums()
        of_day = extra("pyarrow.dataset").field("day") == day
        dataset = table.to_pyarrow_dataset()
        for batch in dataset.to_batches(columns=list(COLUMNS), filter=of_day):
            self._run.check()
            there.add(batch)
        if (read.content(), read.total) != (there.content(), there.total):
            raise self._differs(
                [("read from it", read.content()), ("in the table", there.content())]
            )
        files = _files_of(_of_day(table, day))
        return Published(str(there.total), files, int(table.version()))

    def take_back(self, day: date, listed: Sequence[str]) -> None:
        """Do nothing: a commit stands, and the next run replaces the day."""

    def clean(self, day: date, paths: Sequence[str]) -> None:
        """Do nothing, as clear()."""

    def remove(self, paths: Sequence[str]) -> None:
        """Do nothing, as clear()."""

    def strays(self, day: date) -> list[str]:
        """Return nothing: what the table has of the day is in its log."""
        return []

    def look(self, day: date, files: Files, rows: int) -> Files | None:
        """Return the day's files of the present version, if these have its rows."""
        table = self._found()
        of_day = [] if table is None else _of_day(table, day)
        if sum(row["num_records"] or 0 for row in of_day) != rows:
            return None
        return _files_of(of_day)

    def _take_away(self, day: date) -> int | None:
        """Delete a day that has no rows any more."""
        if self._table is None:
            return None
        self._table.delete(f"day = '{day}'", commit_properties=self._commit(day))
        return int(self._table.version())

    def _found(self) -> Any:
        """Return the table; None: there is none."""
        if not self._delta.DeltaTable.is_deltatable(self._target):
            return None
        return self._delta.DeltaTable(self._target)

    def _as_it_is(self, frame: Any) -> Any:
        """Return the table, made if there is none: each commit follows from another."""
        table = self._found()
        if table is not None:
            return table
        schema = _with_day(_empty(frame), date.min).schema
        return made_table(self._target, schema, ["day", "queue"])

    def _commit(self, day: date) -> Any:
        return self._delta.CommitProperties(
            custom_metadata={"pgqueue.day": str(day), "pgqueue.run": str(self._run.id)},
            app_transactions=[self._delta.Transaction(APPLICATION, self._run.id)],
        )

    def _differs(self, found: list[tuple[str, object]]) -> DayRefused:
        told = differences([("PostgreSQL", self._expected), *found])
        return DayRefused(f"Rows and checksum differ: {told or found}.")


class _Sums:
    """The sums of spark.export.checksum, over Arrow batches."""

    def __init__(self) -> None:
        self.is_complete = False
        self.rows = 0
        self.identity = 0
        self.total = 0

    def content(self) -> Content:
        return Content(self.rows, str(self.identity))

    def add(self, batch: Any) -> None:
        values = {name: _plain(batch.column(name)) for name in COLUMNS}
        self.rows += batch.num_rows
        for row in zip(*(values[name] for name in IDENTITY), strict=True):
            self.identity += _hash("|".join(map(str, row)))
        for row in zip(*values.values(), strict=True):
            self.total += _hash(repr(row))


def _hash(text: str) -> int:
    # The first 60 bits, as in runs.exports.CONTENT.
    digest = sha256(text.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8]) >> 4


def _plain(column: Any) -> list[Any]:
    """Return the values of a column; times as microseconds since 1970."""
    arrow = extra("pyarrow")
    if arrow.types.is_timestamp(column.type):
        column = column.cast(arrow.timestamp("us", tz="UTC")).cast(arrow.int64())
    values: list[Any] = column.to_pylist()
    return values


def _with_day(batch: Any, day: date) -> Any:
    arrow = extra("pyarrow")
    days = arrow.repeat(arrow.scalar(day, arrow.date32()), batch.num_rows)
    return batch.append_column("day", days)


def actions_of(table: Any) -> list[dict[str, Any]]:
    """Return `path`, bytes, `num_records` and day of each file of a Delta table."""
    found = extra("pyarrow").table(table.get_add_actions(flatten=True))
    wanted = ["path", "size_bytes", "num_records", "partition.day"]
    actions: list[dict[str, Any]] = found.select(wanted).to_pylist()
    return actions


def made_table(target: str, schema: Any, partition_by: list[str]) -> Any:
    """Return the Delta table at *target*, made empty if nobody has made it."""
    delta = extra("deltalake")
    delta.DeltaTable.create(target, schema, mode="ignore", partition_by=partition_by)
    return delta.DeltaTable(target)


def _of_day(table: Any, day: date) -> list[dict[str, Any]]:
    return [row for row in actions_of(table) if row["partition.day"] == day]


def _files_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    files = [{"path": row["path"], "bytes": row["size_bytes"]} for row in rows]
    return sorted(files, key=lambda file: str(file["path"]))


def _empty(frame: Any) -> Any:
    """Return a batch of no rows, with the columns of *frame*."""
    arrow = extra("pyarrow")
    schema = frame.select(*COLUMNS).limit(0).toArrow().schema
    return arrow.RecordBatch.from_pylist([], schema=schema)
