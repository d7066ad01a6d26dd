"""
Parquet: a folder for each day, and in it one for each queue.

    <target>/day=2026-11-21/queue=mail/run-7-….parquet
    <target>/day=2026-11-21/_SUCCESS
    <target>/_pgqueue/run-7/…         what is not published yet; readers pass over it

A day is written and read again below `_pgqueue`, and then moved: as a whole where there
is nothing of it yet, which on file: and hdfs: is one step; else file by file, beside
those that it replaces, which are deleted when the manifest lists the new ones. Files
have the run in their names, so no two runs ever mean the same one. An object store
moves one file after the other, so there a reader that must not see half a new day waits
for `_SUCCESS`, which is made last and then stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.extras import extra
from django_pgqueue.pipeline.exports import Content, Files
from django_pgqueue.spark.export.checksum import (
    COLUMNS,
    content_of,
    differences,
    sums,
)
from django_pgqueue.spark.export.place import DayRefused, Published
from django_pgqueue.spark.folders import Folder
from django_pgqueue.spark.tables import ARCHIVE

# Spark and Arrow pass over names that begin so.
ASIDE = "_pgqueue"
DONE = "_SUCCESS"

SCHEMA = ", ".join(f"{column.name} {column.type}" for column in ARCHIVE.columns)


class ParquetPlace:
    """A folder of Parquet files, by day and queue."""

    def __init__(self, run: Any, target: str) -> None:
        self._run = run
        self._target = target
        self._folder = Folder(run.session, target)
        self._aside = f"{ASIDE}/run-{run.id}"
        self._written: dict[str, int] = {}
        self._content = ""
        # Names below the day that publish() has begun to make.
        self._put: dict[date, list[str]] = {}

    def clear(self) -> None:
        """Remove what other runs, which are over, have not published."""
        self._folder.remove(ASIDE)

    def leave(self) -> None:
        """Remove what this run has not published; another may have begun meanwhile."""
        self._folder.remove(self._aside)
        self._folder.remove_empty(ASIDE)

    def has(self, day: date) -> bool:
        """Whether the day has a file that readers see."""
        return bool(self.strays(day))

    def write(self, day: date, frame: Any, expected: Content, size: int) -> None:
        """Write *frame* aside, read it again, and compare all three."""
        aside = self._aside_of(day)
        self._folder.remove(aside)
        self._written, self._content = {}, ""
        if not expected.rows:
            return
        observation = extra("pyspark.sql").Observation()
        with microseconds(self._run.session):
            (
                frame.observe(observation, *sums())
                .write.partitionBy("queue")
                .option("compression", "zstd")
                .option("mapreduce.output.basename", f"run-{self._run.id}")
                # Made here, when the day is where it belongs.
                .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
                .parquet(self._folder.path(aside))
            )
        self._run.check()
        read = observation.get
        there = (
            self._run.session.read.schema(SCHEMA)
            .parquet(self._folder.path(aside))
            .select(*COLUMNS)
            .agg(*sums())
            .first()
        )
        problem = differences(
            [
                ("PostgreSQL", expected),
                ("read from it", content_of(read)),
                ("in the files", content_of(there)),
            ]
        ) or differences(
            [
                ("all columns as they were read", read["content"]),
                ("in the files", there["content"]),
            ]
        )
        if problem:
            self._folder.remove(aside)
            raise DayRefused(f"Rows and checksum differ: {problem}.")
        self._written = self._folder.files(aside)
        self._content = str(there["content"])

    def publish(self, day: date) -> Published:
        """Move the day to its place, beside what is there."""
        name, folder, aside = _name(day), self._folder, self._aside_of(day)
        before = self.strays(day)
        self._put[day] = sorted(self._written)
        if self._written and not folder.exists(name):
            # One step where that is possible, so that nobody reads half of it.
            folder.move(aside, name)
        else:
            for path in self._put[day]:
                folder.move(f"{aside}/{path}", f"{name}/{path}")
        files = [
            {"path": f"{name}/{path}", "bytes": size}
            for path, size in sorted(self._written.items())
        ]
        if self.look(day, files, len(files)) is None:
            raise SparkError(
                f"{folder.path(name)} lacks files that were moved there. Somebody else "
                f"writes there; the next run exports the day anew."
            )
        return Published(self._content, files, replaced=before)

    def take_back(self, day: date, listed: Sequence[str]) -> None:
        """Delete the files of this run that are in no manifest."""
        put = (f"{_name(day)}/{path}" for path in self._put.pop(day, []))
        self.remove([path for path in put if path not in listed])

    def clean(self, day: date, paths: Sequence[str]) -> None:
        """Delete what was replaced, and say that the rest is the day."""
        self._put.pop(day, None)
        self.remove(paths)
        if self._folder.exists(_name(day)):
            self._folder.touch(f"{_name(day)}/{DONE}")

    def remove(self, paths: Sequence[str]) -> None:
        """Delete files one by one: their folder may be filled meanwhile."""
        for path in paths:
            self._folder.remove(path)

    def strays(self, day: date) -> list[str]:
        """Return the files that readers see of the day."""
        name = _name(day)
        return [
            f"{name}/{path}"
            for path in sorted(self._folder.files(name))
            if not path.rpartition("/")[2].startswith(("_", "."))
        ]

    def look(self, day: date, files: Files, rows: int) -> Files | None:
        """Return *files*, if each of them is there with its bytes."""
        name = _name(day)
        there = self._folder.files(name)
        found = {f"{name}/{path}": size for path, size in there.items()}
        is_whole = bool(files) == bool(rows) and all(
            found.get(file["path"]) == file["bytes"] for file in files
        )
        return files if is_whole else None

    def _aside_of(self, day: date) -> str:
        return f"{self._aside}/{_name(day)}"


def _name(day: date) -> str:
    return f"day={day}"


@contextmanager
def microseconds(session: Any) -> Iterator[None]:
    """Let times be written as every reader of Parquet knows them, and not as INT96."""
    key = "spark.sql.parquet.outputTimestampType"
    before = session.conf.get(key)
    session.conf.set(key, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        session.conf.set(key, before)
