"""
Parquet: a folder for each day, and in it one for each queue.

    <target>/day=2026-11-21/queue=mail/part-….parquet
    <target>/day=2026-11-21/_SUCCESS
    <target>/_pgqueue/run-7/…         what is not published yet; readers pass over it

A day is written and read again below `_pgqueue`, and then moved as a whole. On file:
and hdfs: that is one step. An object store moves one file after the other, so there a
reader that must not see half a day waits for `_SUCCESS`, which is made last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.runs.exports import Content
from django_pgqueue.spark.export.checksum import (
    COLUMNS,
    content_of,
    differences,
    sums,
)
from django_pgqueue.spark.export.place import DayRefused, Published
from django_pgqueue.spark.extras import extra
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

    def clear(self) -> None:
        """Remove what other runs, which are over, have not published."""
        self._folder.remove(ASIDE)

    def leave(self) -> None:
        """Remove what this run has not published; another may have begun meanwhile."""
        self._folder.remove(self._aside)
        self._folder.remove_empty(ASIDE)

    def has(self, day: date) -> bool:
        """Whether the day has a folder."""
        return self._folder.exists(_name(day))

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
        """Move the day to its place; what is there makes room for it first."""
        name, folder = _name(day), self._folder
        if folder.exists(name):
            # One step where that is possible, so that nobody reads half of it.
            replaced = f"{self._aside}/replaced-{day}"
            folder.remove(replaced)
            folder.move(name, replaced)
        if self._written:
            folder.move(self._aside_of(day), name)
            there = folder.files(name)
            if there != self._written:
                raise SparkError(
                    f"{folder.path(name)} has other files than were written. Somebody "
                    f"else writes there; the next run replaces the day."
                )
            folder.touch(f"{name}/{DONE}")
        return Published(
            self._content,
            [
                {"path": f"{name}/{path}", "bytes": size}
                for path, size in sorted(self._written.items())
            ],
        )

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
