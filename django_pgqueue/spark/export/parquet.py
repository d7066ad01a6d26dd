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

from collections.abc import Iterator, Sequence
from datetime import date
from itertools import chain
from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.extras import extra
from django_pgqueue.pipeline.exports import Files
from django_pgqueue.spark.export.parquet_files import QUEUE, Writer, read, schema_of
from django_pgqueue.spark.export.place import Place, Published, Written, compare
from django_pgqueue.spark.export.store import Store
from django_pgqueue.spark.reader import arrow_schema
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.tables import ARCHIVE

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
