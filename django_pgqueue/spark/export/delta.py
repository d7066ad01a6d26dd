"""
Delta: a table of Delta Lake, partitioned by day and queue, written by `deltalake`.

It needs no jar, and no Spark. A commit replaces the day as a whole; one that breaks
off, for whatever reason, leaves files that belong to no version, which VACUUM removes.
A table that was made by an older release gets the columns that it lacks.

A commit follows from the version that the table had while this run was known to be
live. Each commit names the export's application; so once a later run has committed
anything, that of a run which was paused is refused by Delta.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import chain
from typing import Any

from django_pgqueue.extras import extra
from django_pgqueue.pipeline.exports import Files
from django_pgqueue.spark.export.place import Place, Published, Written, compare
from django_pgqueue.spark.export.store import for_arrow
from django_pgqueue.spark.export.sums import Sums
from django_pgqueue.spark.reader import arrow_schema
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.tables import ARCHIVE

# Of two commits that name it and follow from one version, Delta refuses the second.
APPLICATION = "django_pgqueue.export"

DAY = "day"


class DeltaPlace(Place):
    """A Delta table, of any file system that deltalake knows."""

    def __init__(self, run: Run, target: str) -> None:
        super().__init__(run)
        self._target = for_arrow(target)
        self._delta = extra("deltalake")
        self._table: Any = None
        self._rows: Written | None = None
        # What is read of it so far, and the rest.
        self._first: Any = None
        self._rest: Iterator[Any] = iter(())

    def has(self, day: date) -> bool:
        """Whether the table has files of the day."""
        table = found_table(self._target)
        return table is not None and bool(_of_day(table, day))

    def write(self, day: date, rows: Written) -> None:
        """Begin to read, and remember the version: publish() writes in one step."""
        self._rows = rows
        self._rest = rows.batches()
        self._first = next(self._rest, None)
        self._table = found_table(self._target)
        if self._first is not None and self._table is None:
            # Each commit follows from another.
            schema = _with_day(self._first.slice(0, 0), day).schema
            self._table = made_table(self._target, schema, [DAY, "queue"])

    def publish(self, day: date, kept: Sequence[str] = ()) -> Published:
        """Replace the day by what is read, if all is; read it again, and compare."""
        assert self._rows is not None
        if self._first is None:
            return Published([], self._take_away(day))
        problems: list[Exception] = []
        stream = extra("pyarrow").RecordBatchReader.from_batches(
            _with_day(self._first, day).schema,
            (
                _with_day(batch, day)
                for batch in _telling(chain([self._first], self._rest), problems)
            ),
        )
        try:
            self._delta.write_deltalake(
                self._table,
                stream,
                mode="overwrite",
                predicate=f"day = '{day}'",
                partition_by=[DAY, "queue"],
                schema_mode="merge",
                target_file_size=self.file_bytes,
                commit_properties=self._commit(day),
            )
        except Exception:
            self._run.check()
            # Through Arrow, an error of ours comes as a text.
            if problems:
                raise problems[0] from None
            raise
        return self._read_again(day, self._rows.sums)

    def _read_again(self, day: date, given: Sums) -> Published:
        table = self._delta.DeltaTable(self._target)
        compare(self._run, given, _batches(table, day))
        return Published(_files_of(_of_day(table, day)), int(table.version()))

    def forget(self) -> None:
        """Delete the files of all versions but the present one."""
        table = found_table(self._target)
        if table is not None:
            table.vacuum(
                retention_hours=0, enforce_retention_duration=False, dry_run=False
            )

    def said(self, name: str) -> list[Mapping[str, Any]]:
        """Return what commits say that say *name*, with their `version`."""
        table = found_table(self._target)
        history = [] if table is None else table.history()
        return [commit for commit in history if name in commit]

    def look(self, day: date, files: Files, rows: int) -> Files | None:
        """Return the day's files of the present version, if these have its rows."""
        table = found_table(self._target)
        of_day = [] if table is None else _of_day(table, day)
        if sum(row["num_records"] or 0 for row in of_day) != rows:
            return None
        return _files_of(of_day)

    def schema(self, files: Files) -> Any:
        """Return the columns of the contract, and then those that the table has too."""
        arrow = extra("pyarrow")
        ours = arrow_schema(ARCHIVE.columns)
        table = found_table(self._target)
        if table is None:
            return ours
        theirs = table.to_pyarrow_dataset().schema
        return arrow.schema(
            [*ours, *(f for f in theirs if f.name not in {*ours.names, DAY})]
        )

    def rows(
        self, day: date, files: Files, columns: Sequence[str] | None = None
    ) -> Iterator[Any]:
        """Yield the rows that the table has of the day."""
        table = found_table(self._target)
        if table is not None:
            yield from _batches(table, day, columns)

    def _take_away(self, day: date) -> int | None:
        """Delete a day that has no rows any more."""
        if self._table is None:
            return None
        self._table.delete(f"day = '{day}'", commit_properties=self._commit(day))
        return int(self._table.version())

    def _commit(self, day: date) -> Any:
        return self._delta.CommitProperties(
            custom_metadata={
                "pgqueue.day": str(day),
                "pgqueue.run": str(self._run.id),
                **self.says,
            },
            app_transactions=[self._delta.Transaction(APPLICATION, self._run.id)],
        )


def _telling(batches: Iterator[Any], problems: list[Exception]) -> Iterator[Any]:
    """Yield *batches*; what goes wrong is noted in *problems* as well."""
    try:
        yield from batches
    except Exception as error:
        problems.append(error)
        raise


def _batches(
    table: Any, day: date, columns: Sequence[str] | None = None
) -> Iterator[Any]:
    of_day = extra("pyarrow.dataset").field(DAY) == day
    dataset = table.to_pyarrow_dataset()
    wanted = [
        name
        for name in dataset.schema.names
        if name != DAY and (columns is None or name in columns)
    ]
    for batch in dataset.to_batches(columns=wanted, filter=of_day):
        if batch.num_rows:
            yield batch


def _with_day(batch: Any, day: date) -> Any:
    arrow = extra("pyarrow")
    days = arrow.repeat(arrow.scalar(day, arrow.date32()), batch.num_rows)
    return batch.append_column(DAY, days)


def actions_of(table: Any) -> list[dict[str, Any]]:
    """Return `path`, bytes, `num_records` and day of each file of a Delta table."""
    found = extra("pyarrow").table(table.get_add_actions(flatten=True))
    wanted = ["path", "size_bytes", "num_records", "partition.day"]
    actions: list[dict[str, Any]] = found.select(wanted).to_pylist()
    return actions


def found_table(target: str) -> Any:
    """Return the Delta table at *target*; None: there is none."""
    table = extra("deltalake").DeltaTable
    return table(target) if table.is_deltatable(target) else None


def made_table(target: str, schema: Any, partition_by: list[str]) -> Any:
    """Return the Delta table at *target*, made empty if nobody has made it."""
    delta = extra("deltalake")
    delta.DeltaTable.create(target, schema, mode="ignore", partition_by=partition_by)
    return delta.DeltaTable(target)


def _of_day(table: Any, day: date) -> list[dict[str, Any]]:
    return [row for row in actions_of(table) if row["partition.day"] == day]


def _files_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    files = [
        {"path": row["path"], "bytes": row["size_bytes"], "rows": row["num_records"]}
        for row in rows
    ]
    return sorted(files, key=lambda file: str(file["path"]))
