"""
Parquet: a batch is written aside as a whole, then its files are moved to their places.

    _pgqueue_ingest/ID/batch-7            a batch that is being written
    _pgqueue_ingest/ID/batch-7/_whole     all of it is written: its files are moved
    topic=orders/day=2026-11-22/          what readers see

A batch that runs again after a crash is written anew until it is whole, and then only
what is left of it is moved: no file comes twice. ID is the checkpoint's, so that a new
one, which counts from 0, never takes its batches for those of another.
"""

from __future__ import annotations

from typing import Any

from django_pgqueue.spark.export.parquet import microseconds
from django_pgqueue.spark.extras import extra
from django_pgqueue.spark.folders import Folder

# Spark and Arrow pass over names that begin so; the export empties `_pgqueue`.
ASIDE = "_pgqueue_ingest"

BATCH = "batch-"
WHOLE = "_whole"

OPEN_FILES = "spark.sql.maxConcurrentOutputFileWriters"
FILES_OPEN_MAX = 32

# Of the checkpoint's id, in the name of a file.
ID_CHARACTERS = 8


class ParquetPlace:
    """A folder of Parquet files, by topic and day."""

    # None: as many as the option says.
    rows_max: int | None = None

    def __init__(self, run: Any, target: str) -> None:
        self._run = run
        self._folder = Folder(run.session, target)

    def is_empty(self) -> bool:
        """Whether no message was ever put there."""
        return not any(name.startswith("topic=") for name in self._folder.names(""))

    def positions(self) -> list[Any]:
        """Return topic, partition and highest id of what is there, as rows."""
        f = extra("pyspark.sql.functions")
        found = self._run.session.read.parquet(self._folder.path())
        return list(
            found.groupBy("topic", "partition").agg(f.max("id").alias("id")).collect()
        )

    def write(self, frame: Any, stream: str, number: int) -> int:
        """Put a batch there; return its messages, 0 if an earlier run wrote them."""
        state = f"{ASIDE}/{stream}"
        batch = f"{state}/{BATCH}{number}"
        rows = 0
        if not self._folder.exists(f"{batch}/{WHOLE}"):
            rows = self._write(frame, batch)
        self._move_all(batch, f"{stream[:ID_CHARACTERS]}-{number:06d}")
        self._clear(state, number)
        return rows

    def _write(self, frame: Any, batch: str) -> int:
        f = extra("pyspark.sql.functions")
        self._folder.remove(batch)
        counted, rows = self._run.counted(frame)
        # The session of this query alone. A task that has a file open for each topic
        # and day need not sort its messages by them.
        frame.sparkSession.conf.set(OPEN_FILES, str(FILES_OPEN_MAX))
        with microseconds(frame.sparkSession):
            (
                counted.withColumn("day", f.to_date("published_at"))
                .write.partitionBy("topic", "day")
                .option("compression", "zstd")
                .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
                .parquet(self._folder.path(batch))
            )
        # Only a live run decides that a batch is whole.
        with self._run.transaction():
            self._folder.touch(f"{batch}/{WHOLE}")
        return int(rows())

    def _move_all(self, batch: str, prefix: str) -> None:
        for name in sorted(self._folder.files(batch)):
            place, _, file = name.rpartition("/")
            if not place or file.startswith(("_", ".")):
                continue
            to = f"{place}/{prefix}-{file}"
            # An object store copies and then deletes: a crash may come in between.
            if self._folder.exists(to):
                self._folder.remove(f"{batch}/{name}")
            else:
                self._folder.move(f"{batch}/{name}", to)

    def _clear(self, state: str, number: int) -> None:
        """Forget the batches before *number*: Spark never runs them again."""
        for name in self._folder.names(state):
            if int(name.removeprefix(BATCH)) < number:
                self._folder.remove(f"{state}/{name}")
