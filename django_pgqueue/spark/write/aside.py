"""
Aside: rows that were refused, as Parquet, as they came and with the reason.

Each attempt of a task writes one file below _pending, where Spark does not look; those
of the attempts that count are moved when the write is committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django_pgqueue.exceptions import SparkError
from django_pgqueue.extras import extra
from django_pgqueue.spark.store import Store

PENDING = "_pending"


class Aside:
    """The file of one attempt, made when its first row is refused."""

    def __init__(self, path: str, write_id: UUID, partition: int, attempt: int) -> None:
        self._path = path
        self._folder = _pending(write_id)
        self.name = f"part-{partition:05}-{write_id.hex}-{attempt}.parquet"
        self._file: Any = None
        self._writer: Any = None

    def add(self, rows: Any) -> None:
        """Take a pyarrow.RecordBatch of refused rows."""
        if self._writer is None:
            try:
                self._file = Store(self._path).writes(f"{self._folder}/{self.name}")
            except OSError as error:
                raise _cannot(self._path, error) from None
            parquet = extra("pyarrow.parquet")
            self._writer = parquet.ParquetWriter(self._file, rows.schema)
        self._writer.write_batch(rows)

    def close(self) -> list[str]:
        """End the file; return its name, if there is one."""
        if self._writer is None:
            return []
        self._writer.close()
        self._file.close()
        return [self.name]


def settle(path: str, write_id: UUID, names: Iterable[str]) -> None:
    """
    Move the files *names* of a write to where they are seen, and delete its others.

    It may be done again after it broke off.
    """
    store, folder = Store(path), _pending(write_id)
    try:
        for name in names:
            # An object store copies and then deletes: what is there is whole.
            if store.exists(f"{folder}/{name}") and not store.exists(name):
                store.move(f"{folder}/{name}", name)
        store.remove_folder(folder)
    except OSError as error:
        raise _cannot(path, error) from None


def _pending(write_id: UUID) -> str:
    """Return the folder, below the path, of files that do not count yet."""
    return f"{PENDING}/{write_id.hex}"


def _cannot(path: str, error: Exception) -> SparkError:
    problem = " ".join(str(error).split())[:200]
    return SparkError(f"refusedPath {path!r} cannot be written: {problem}.")
