"""
Parquet files: batches of any order to a file or more for each queue, and back.

Where there are more queues than files may be open, the one that has waited longest is
closed, and its queue gets another file. `compact` makes one of them. What is said of
queues here holds for any column that is a folder, such as the day of messages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

from django_pgqueue.extras import extra
from django_pgqueue.pipeline.exports import Files
from django_pgqueue.spark.export.store import Store

# What is in memory until it is written: a group of rows for each queue.
GROUP_ROWS = 131_072
GROUP_BYTES = 67_108_864

# Megabytes (2**20 bytes) of a file; one that has grown so large is followed by another.
FILE_MB = 256

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
