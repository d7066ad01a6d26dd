"""
A Delta table of the lake, by `deltalake`: days of the archive, or messages of the log.

A commit is one step, for readers and for crashes. Delta refuses a commit of which
another one has overtaken the version that it follows from, if both name the same
application transaction, change the same files, or one of them is fence()'s. So a run
loads the log, sees in the database that it is live, reads what it is to write, and
commits: whoever was paused meanwhile, or has read rows that were erased since, is
refused.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from django_pgqueue.bounds import EXPORT_CHARACTERS_MAX, EXPORT_TARGET
from django_pgqueue.exceptions import SparkError, SparkOptionError
from django_pgqueue.extras import extra
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.spark.lake.theirs import Theirs
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.store import Store, for_arrow

DAY = "day"

# Megabytes (2**20 bytes) of a file; one that has grown so large is followed by another.
FILE_MB = 256

# A commit that is refused is tried so often, each time with what was read anew.
TRIES = 3

# The folders in which a table of ours has its files; others may be beside them.
OF_TABLE = re.compile(
    r"(files/[0-9a-f]{32}|day=[^/]+/queue=[^/]+|topic=[^/]+/day=[^/]+)/", re.ASCII
)

# Ids that one DELETE names.
DELETE_IDS = 5_000

# What a commit of an erasure says: its receipt, and the day that rows are gone from.
RECEIPT, ERASED_DAY = "pgqueue.erasure", "pgqueue.erased_day"


def checked_target(path: str) -> str:
    """
    Return *path* as rows have it: without slashes at its end.

    Raises:
        SparkOptionError: There is none, it is not from the root, or Delta takes none
            like it.
    """
    if not path:
        raise SparkOptionError(
            "The run has no path: set PGQUEUE['EXPORT'], or give -o path=/srv/export."
        )
    if not EXPORT_TARGET.match(path):
        raise SparkOptionError(
            f"The path is {path!r}; it must begin with / or be a URI such as "
            f"s3a://bucket/jobs."
        )
    if len(path) > EXPORT_CHARACTERS_MAX:
        raise SparkOptionError(
            f"The path has {len(path):,} characters; the limit is "
            f"{EXPORT_CHARACTERS_MAX:,}."
        )
    if "%" in path:
        raise SparkOptionError(f"The path is {path!r}; a Delta table takes no %.")
    return path.rstrip("/")


def checked_days(since: str, until: str) -> tuple[date, date]:
    """
    Return the first and the last day that the options say; "": there is no such end.

    Raises:
        SparkOptionError: One is no day, or the last is before the first.
    """
    first, last = _day("since", since, date.min), _day("until", until, date.max)
    if last < first:
        raise SparkOptionError(
            f"The option until is {until!r}, before since, which is {since!r}: no day "
            f"is meant."
        )
    return first, last


def _day(name: str, text: str, otherwise: date) -> date:
    try:
        return date.fromisoformat(text) if text else otherwise
    except ValueError:
        raise SparkOptionError(
            f"The option {name} is {text!r}; it must be a day such as 2026-11-21."
        ) from None


class LakeTable:
    """The Delta table at *target*, whose log is loaded once and then followed."""

    def __init__(self, run: Run, target: str) -> None:
        self.run = run
        self.target = target
        self.store = Store(target)
        self._delta = extra("deltalake")
        self._uri = for_arrow(target)
        self._loaded: Any = None
        self._dataset: tuple[int, Any] = (-1, None)

    @property
    def refused(self) -> type[Exception]:
        """What a commit raises that another one has overtaken."""
        error: type[Exception] = self._delta.exceptions.CommitFailedError
        return error

    def latest(self) -> Any:
        """Return the deltalake.DeltaTable, as it is now; None: there is none."""
        if self._loaded is not None:
            self._loaded.update_incremental()
        elif self._delta.DeltaTable.is_deltatable(self._uri):
            self._loaded = self._delta.DeltaTable(self._uri)
        return self._loaded

    def existing(self) -> Any:
        """
        Return it as latest() does.

        Raises:
            SparkOptionError: There is none.
        """
        table = self.latest()
        if table is None:
            raise SparkOptionError(
                f"There is no Delta table at {self.target}: run export or ingest, or "
                f"name another path."
            )
        return table

    def made(self, schema: Any, partition_by: Sequence[str]) -> Any:
        """
        Return it as latest() does; it is made first, or gets the columns that it lacks.

        Raises:
            SparkError: The table is another one.
        """
        table = self.latest()
        if table is None:
            self._delta.DeltaTable.create(
                self._uri, schema, mode="ignore", partition_by=[*partition_by]
            )
            table = self.latest()
        if table.metadata().partition_columns != [*partition_by]:
            raise SparkError(
                f"The Delta table at {self.target} has other rows: it is divided by "
                f"{', '.join(table.metadata().partition_columns) or 'nothing'}. Take "
                f"another path."
            )
        names = {field.name for field in table.schema().fields}
        fields = self._delta.Schema.from_arrow(schema).fields
        lacking = [field for field in fields if field.name not in names]
        if lacking:
            table.alter.add_columns(lacking)
        return table

    # What latest() has found --------------------------------------------------------

    def files(self) -> list[dict[str, Any]]:
        """Return path, `size_bytes`, `num_records` and partition of each file."""
        if self._loaded is None:
            return []
        added = self._loaded.get_add_actions(flatten=True)
        files: list[dict[str, Any]] = extra("pyarrow").table(added).to_pylist()
        return files

    def rows_by_day(self) -> dict[date, int]:
        """Return how many rows each day has, by the log."""
        rows: defaultdict[date, int] = defaultdict(int)
        for file in self.files():
            rows[file["partition.day"]] += file["num_records"] or 0
        return rows

    def broken_days(self) -> set[date]:
        """Return the days of which the log names files that are not there."""
        there = self.store.files("")
        return {
            file["partition.day"]
            for file in self.files()
            if there.get(file["path"]) != file["size_bytes"]
        }

    def batches(self, day: date, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the rows of a day as pyarrow.RecordBatch of *columns*."""
        if self._loaded is None:
            return
        version = self._loaded.version()
        if self._dataset[0] != version:
            # With Arrow's own file system: that of deltalake lets Python crash at its
            # end, once a file was not there.
            dataset = self._loaded.to_pyarrow_dataset(filesystem=self.store.filesystem)
            self._dataset = version, dataset
        of_day = extra("pyarrow.dataset").field(DAY) == day
        for batch in self._dataset[1].to_batches(columns=[*columns], filter=of_day):
            self.run.check()
            if batch.num_rows:
                yield batch

    # What changes it ----------------------------------------------------------------

    def commit_properties(self, transactions: Mapping[str, int]) -> Any:
        """Return what a commit names: this run, and transactions by application."""
        return self._delta.CommitProperties(
            custom_metadata={"pgqueue.run": str(self.run.id)},
            app_transactions=[
                self._delta.Transaction(name, version)
                for name, version in transactions.items()
            ],
        )

    def compact(self, first: date, last: date, file_bytes: int) -> int:
        """Rewrite small files of each day into few; return their rows."""
        table = self.existing()
        before = self.files()
        found = {file["partition.day"] for file in before}
        days = sorted(str(day) for day in found if first <= day <= last)
        if not days:
            return 0
        table.optimize.compact(
            partition_filters=[(DAY, "in", days)], target_size=file_bytes
        )
        self.latest()
        there = {file["path"] for file in self.files()}
        old = [file for file in before if file["path"] not in there]
        if old:
            self.run.note(f"{len(old)} files were rewritten.")
        # What was replaced a week ago; a younger file may be read.
        table.vacuum(dry_run=False)
        return sum(int(file["num_records"] or 0) for file in old)

    def fence(self, receipt: int) -> None:
        """
        Have Delta refuse the commits of all who have read before; each change of the
        table's properties does that. What dead runs have left is deleted.
        """
        table = self.existing()
        left = self.store.files("")
        with self.run.reading() as cursor:
            others = {*pipelines.live_runs(cursor)} - {self.run.id}
        table.alter.set_table_properties(
            {RECEIPT: str(receipt)}, raise_if_not_exists=False
        )
        self.latest()
        there = {file["path"] for file in self.files()}
        # Whoever has written them can commit them no more; one that is live has them
        # open.
        for path in () if others else left:
            if OF_TABLE.match(path) and path not in there:
                self.store.remove(path)

    def find(self, day: date, theirs: Theirs) -> list[int]:
        """Return the ids of rows of a day that are *theirs*."""
        return [
            id_
            for batch in self.batches(day, ["id", *theirs.columns])
            for id_ in batch.filter(theirs.mask(batch)).column("id").to_pylist()
        ]

    def erase(self, day: date, ids: Sequence[int], receipt: int) -> None:
        """Delete rows of a day, by commits that name a receipt."""
        for start in range(0, len(ids), DELETE_IDS):
            some = ", ".join(map(str, ids[start : start + DELETE_IDS]))
            self.run.check()
            self._loaded.delete(
                f"{DAY} = '{day}' AND id IN ({some})",
                commit_properties=self._delta.CommitProperties(
                    custom_metadata={RECEIPT: str(receipt), ERASED_DAY: str(day)}
                ),
            )
        self.latest()

    def forget(self) -> None:
        """Delete the files that commits have replaced: nobody can read them again."""
        self._loaded.vacuum(
            retention_hours=0, enforce_retention_duration=False, dry_run=False
        )

    def erased(self) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
        """Yield receipt, place and metrics of commits of erasures, the newest first."""
        for commit in self._loaded.history():
            if ERASED_DAY in commit:
                place = {
                    "target": self.target,
                    "day": commit[ERASED_DAY],
                    "version": commit["version"],
                }
                yield int(commit[RECEIPT]), place, commit["operationMetrics"]
