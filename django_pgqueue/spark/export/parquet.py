"""
Parquet: a folder for each day, and in it one for each queue.

    <target>/day=2026-11-21/queue=mail/run-7-0.parquet
    <target>/day=2026-11-21/_SUCCESS
    <target>/_pgqueue/run-7/…         what is not published yet; readers pass over it

A day is written and read again below `_pgqueue`, and then moved: as a whole where there
is nothing of it yet, which on a file system is one step; else file by file, beside
those that it replaces, which are deleted when the manifest lists the new ones. Files
have the run in their names, so no two runs ever mean the same one. An object store
moves one file after the other, so there a reader that must not see half a new day waits
for `_SUCCESS`, which is made last and then stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import chain
from math import ceil
from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.extras import extra
from django_pgqueue.pipeline.exports import Files
from django_pgqueue.spark.export.place import Place, Published, Written, compare
from django_pgqueue.spark.export.store import Store
from django_pgqueue.spark.reader import arrow_schema
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.tables import ARCHIVE

# What is in memory until it is written: a group of rows for each queue.
GROUP_ROWS = 131_072
GROUP_BYTES = 67_108_864


OPEN_FILES_MAX = 64

BATCH_ROWS = 65_536

# Spark's own: a third smaller than Arrow's.
ZSTD_LEVEL = 3

QUEUE = "queue"


class Writer:
    """
    The files of one day.

    Args:
        folder: Of the day, in the store.
        name: What the files' names begin with.
        schema: Of the batches; a file has all of it but the queue, which is a folder.
        file_bytes: A file that has grown so large is followed by another.
        by: The column that is a folder.
    """

    def __init__(
        self,
        store: Store,
        folder: str,
        name: str,
        schema: Any,
        *,
        file_bytes: int,
        by: str = QUEUE,
    ) -> None:
        self._store = store
        self._folder = folder
        self._name = name
        self._by = by
        self._schema = schema.remove(schema.get_field_index(by))
        self._file_bytes = file_bytes
        self._batches: list[Any] = []
        self._rows = self._bytes = 0
        # By queue, the one that was written to last at the end.
        self._open: dict[str, _File] = {}
        self._numbers: dict[str, int] = {}
        self._done: dict[str, tuple[int, int]] = {}

    def add(self, batch: Any) -> None:
        """Take a pyarrow.RecordBatch, in memory at first."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> dict[str, tuple[int, int]]:
        """Finish the files; return the bytes and rows of each by its name."""
        self._flush()
        for queue in list(self._open):
            self._close(queue)
        return self._done

    def abandon(self) -> None:
        """Let go of files that are open, finished or not."""
        for file in self._open.values():
            file.abandon()
        self._open = {}

    def _flush(self) -> None:
        if not self._batches:
            return
        arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
        table = arrow.Table.from_batches(self._batches)
        self._batches, self._rows, self._bytes = [], 0, 0
        counted = compute.value_counts(table.column(self._by)).to_pylist()
        if len(counted) > 1:
            table = table.take(compute.sort_indices(table.column(self._by)))
        first = 0
        for found in sorted(counted, key=lambda count: str(count["values"])):
            rows = table.slice(first, found["counts"]).drop_columns([self._by])
            self._write(str(found["values"]), rows)
            first += int(found["counts"])

    def _write(self, queue: str, rows: Any) -> None:
        file = self._open.pop(queue, None)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._close(next(iter(self._open)))
            number = self._numbers.get(queue, 0)
            self._numbers[queue] = number + 1
            path = f"{self._by}={queue}/{self._name}-{number}.parquet"
            file = _File(self._store, self._folder, path, self._schema)
        self._open[queue] = file
        file.write(rows)
        if file.bytes >= self._file_bytes:
            self._close(queue)

    def _close(self, queue: str) -> None:
        file = self._open.pop(queue)
        self._done[file.path] = (file.close(), file.rows)


class _File:
    """One file that is being written."""

    def __init__(self, store: Store, folder: str, path: str, schema: Any) -> None:
        self.path = path
        self.rows = 0
        self._out = store.writes(f"{folder}/{path}")
        self._writer = extra("pyarrow.parquet").ParquetWriter(
            self._out,
            schema,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            write_page_checksum=True,
        )

    @property
    def bytes(self) -> int:
        """What was written so far."""
        return int(self._out.tell())

    def write(self, rows: Any) -> None:
        """Write *rows* as one group."""
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self.rows += rows.num_rows

    def close(self) -> int:
        """Finish it; return its bytes."""
        self._writer.close()
        size = self.bytes
        self._out.close()
        return size

    def abandon(self) -> None:
        """Let go of it."""
        self._writer.is_open = False
        self._out.close()


def read(
    store: Store, path: str, columns: Sequence[str] | None = None, *, by: str = QUEUE
) -> Iterator[Any]:
    """Yield the rows of a file, or some columns, and the queue that its path names."""
    arrow, parquet = extra("pyarrow"), extra("pyarrow.parquet")
    named = path.rpartition("/")[0].rpartition(f"{by}=")[2]
    queue = arrow.scalar(named, arrow.string())
    with store.reads(path) as opened:
        file = parquet.ParquetFile(opened, page_checksum_verification=True)
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
            yield batch.append_column(by, arrow.repeat(queue, batch.num_rows))


def schema_of(store: Store, path: str) -> Any:
    """Return the columns that a file has."""
    with store.reads(path) as opened:
        return extra("pyarrow.parquet").read_schema(opened).remove_metadata()


def rows_of(store: Store, path: str) -> int:
    """Return how many rows a file has."""
    with store.reads(path) as opened:
        return int(extra("pyarrow.parquet").read_metadata(opened).num_rows)


def many(files: Files, size: int) -> Files:
    """Return the files of those folders that have more than they need."""
    of_folder = defaultdict(list)
    for file in files:
        of_folder[str(file["path"]).rpartition("/")[0]].append(file)
    return [
        file
        for some in of_folder.values()
        if len(some) > ceil(sum(int(file["bytes"]) for file in some) / size)
        for file in some
    ]


# Spark and Arrow pass over names that begin so.
ASIDE = "_pgqueue"
DONE = "_SUCCESS"

OF_RUN = "run-"


class ParquetPlace(Place):
    """A folder of Parquet files, by day and queue."""

    replaces_files = True

    def __init__(self, run: Run, target: str) -> None:
        super().__init__(run)
        self._store = Store(target)
        self._aside = f"{ASIDE}/{OF_RUN}{run.id}"
        # By name below the day: bytes and rows.
        self._written: dict[str, tuple[int, int]] = {}
        # Names below the day that publish() has begun to make.
        self._put: dict[date, list[str]] = {}

    def clear(self, live: Sequence[int]) -> None:
        """Remove what runs that are over have not published."""
        others = {f"{OF_RUN}{run}" for run in live if run != self._run.id}
        for name in self._store.names(ASIDE):
            if name not in others:
                self._store.remove_folder(f"{ASIDE}/{name}")

    def leave(self) -> None:
        """Remove what this run has not published; another may have begun meanwhile."""
        self._store.remove_folder(self._aside)
        if not self._store.names(ASIDE):
            self._store.remove_folder(ASIDE)

    def has(self, day: date) -> bool:
        """Whether the day has a file that readers see."""
        return bool(self.strays(day))

    def write(self, day: date, rows: Written) -> None:
        """Write *rows* aside, read them again, and compare."""
        aside, size = self._aside_of(day), self.file_bytes
        self._written = written(self._run, self._store, aside, rows, file_bytes=size)

    def publish(self, day: date, kept: Sequence[str] = ()) -> Published:
        """Move the day to its place, beside what is there."""
        name, store, aside = _name(day), self._store, self._aside_of(day)
        before = self.strays(day)
        self._put[day] = sorted(self._written)
        if self._written and store.moves_folders and not store.exists(name):
            # One step, so that nobody reads half of it.
            store.move(aside, name)
        else:
            for path in self._put[day]:
                store.move(f"{aside}/{path}", f"{name}/{path}")
        files = [
            {"path": f"{name}/{path}", "bytes": size, "rows": rows}
            for path, (size, rows) in sorted(self._written.items())
        ]
        if self.look(day, files, len(files)) is None:
            raise SparkError(
                f"{store.shown(name)} lacks files that were moved there. Somebody else "
                f"writes there; the next run writes the day anew."
            )
        return Published(files, replaced=[path for path in before if path not in kept])

    def take_back(self, day: date, listed: Sequence[str]) -> None:
        """Delete the files of this run that are in no manifest."""
        put = (f"{_name(day)}/{path}" for path in self._put.pop(day, []))
        self.remove([path for path in put if path not in listed])

    def clean(self, day: date, paths: Sequence[str]) -> None:
        """Delete what was replaced, and say that the rest is the day."""
        self._put.pop(day, None)
        self.remove(paths)
        if self.strays(day) and not self._store.exists(f"{_name(day)}/{DONE}"):
            self._store.touch(f"{_name(day)}/{DONE}")

    def remove(self, paths: Sequence[str]) -> None:
        """Delete files one by one: their folder may be filled meanwhile."""
        for path in paths:
            self._store.remove(path)

    def strays(self, day: date) -> list[str]:
        """Return the files that readers see of the day."""
        name = _name(day)
        return [
            f"{name}/{path}"
            for path in sorted(self._store.files(name))
            if not path.rpartition("/")[2].startswith(("_", "."))
        ]

    def look(self, day: date, files: Files, rows: int) -> Files | None:
        """Return *files*, if each of them is there with its bytes."""
        name = _name(day)
        there = self._store.files(name)
        found = {f"{name}/{path}": size for path, size in there.items()}
        is_whole = bool(files) == bool(rows) and all(
            found.get(file["path"]) == file["bytes"] for file in files
        )
        return files if is_whole else None

    def schema(self, files: Files) -> Any:
        """Return the columns of the contract, and then those that *files* have too."""
        of_files = [schema_of(self._store, str(file["path"])) for file in files]
        ours = arrow_schema(ARCHIVE.columns)
        return extra("pyarrow").unify_schemas([ours, *of_files])

    def rows(
        self, day: date, files: Files, columns: Sequence[str] | None = None
    ) -> Iterator[Any]:
        """Yield the rows of *files*, with their queue."""
        for file in files:
            yield from read(self._store, str(file["path"]), columns)

    def _aside_of(self, day: date) -> str:
        return f"{self._aside}/{_name(day)}"


def written(
    run: Run,
    store: Store,
    folder: str,
    rows: Written,
    *,
    file_bytes: int,
    by: str = QUEUE,
) -> dict[str, tuple[int, int]]:
    """
    Write *rows* below a folder that readers do not see, read them again, and compare.

    Args are those of Writer. Returns bytes and rows of each file, by its name there.

    Raises:
        DayRefused: What was written differs.
    """
    name = f"{OF_RUN}{run.id}"
    writer = Writer(store, folder, name, rows.schema, file_bytes=file_bytes, by=by)
    try:
        for batch in rows.batches():
            writer.add(batch)
        files = writer.close()
    finally:
        writer.abandon()
    paths = (f"{folder}/{path}" for path in sorted(files))
    there = chain.from_iterable(read(store, path, by=by) for path in paths)
    compare(run, rows.sums, there, f" of {store.shown(folder)}")
    return files


def _name(day: date) -> str:
    return f"day={day}"
