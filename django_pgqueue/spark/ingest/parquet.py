"""
Parquet: a batch is written aside as a whole, then its files are moved to their places.

    _pgqueue_ingest/ID/batch-7/run-12/         a batch, as one run writes it
    _pgqueue_ingest/ID/batch-7/run-12/_whole   all of it is written
    topic=orders/day=2026-11-22/               what readers see

A run writes into a folder of its own, which no other one touches. The database says
which run's folder is the batch, and only a live run changes that. A batch that runs
again after a crash is written anew until it is decided, and then only what is left of
it is moved, whoever does so: no file comes twice. ID is the checkpoint's, so that a new
one, which counts from 0, never takes its batches for those of another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.extras import extra
from django_pgqueue.pipeline import ingest
from django_pgqueue.spark.export.parquet import rows_of
from django_pgqueue.spark.export.store import Store, for_spark
from django_pgqueue.spark.run import Run

# Spark and Arrow pass over names that begin so; the export empties `_pgqueue`.
ASIDE = "_pgqueue_ingest"

BATCH = "batch-"
WHOLE = "_whole"

# Files of messages, below the place or the folder of a batch.
MESSAGES = re.compile(r"topic=[^/]*/day=[^/]*/[^/_.][^/]*")

OPEN_FILES = "spark.sql.maxConcurrentOutputFileWriters"
FILES_OPEN_MAX = 32
TIMES = "spark.sql.parquet.outputTimestampType"

# Of the checkpoint's id, in the name of a file.
ID_CHARACTERS = 8


class ParquetPlace:
    """A folder of Parquet files, by topic and day."""

    # None: as many as the option says.
    rows_max: int | None = None

    def __init__(self, run: Run, target: str) -> None:
        self._run = run
        self._store = Store(target)

    def is_empty(self, topics: Sequence[str]) -> bool:
        """Whether no message of these topics was ever put there."""
        return not any(self._store.exists(f"topic={name}") for name in topics)

    def positions(self) -> list[Any]:
        """Return topic, partition and highest id of what is there, as rows."""
        f = extra("pyspark.sql.functions")
        found = self._run.session.read.parquet(for_spark(self._store.shown()))
        return list(
            found.groupBy("topic", "partition").agg(f.max("id").alias("id")).collect()
        )

    def write(self, frame: Any, stream: str, number: int) -> int:
        """Put a batch there; return its messages, 0 if an earlier run wrote them."""
        state = f"{ASIDE}/{stream}"
        batch = f"{state}/{BATCH}{number}"
        rows = 0
        folder = self._decided(batch, stream, number)
        if folder is None:
            folder = f"{batch}/run-{self._run.id}"
            rows = self._write(frame, folder)
            # A run that is no longer live goes no further.
            with self._run.transaction(is_brief=True) as cursor:
                ingest.decide(cursor, stream, number, run=self._run.id)
        self._move_all(folder, stream, number)
        self._clear(state, number)
        return rows

    def _decided(self, batch: str, stream: str, number: int) -> str | None:
        """Return the folder that is the batch; None: it is to be written."""
        if self._store.exists(f"{batch}/{WHOLE}"):
            return batch  # As earlier versions have written it.
        with self._run.reading() as cursor:
            found = ingest.latest(cursor, stream)
        if found is None or found.number != number:
            return None
        folder = f"{batch}/run-{found.run}"
        # Where files and checkpoint were restored without it, it is written again.
        return folder if self._store.exists(f"{folder}/{WHOLE}") else None

    def _write(self, frame: Any, batch: str) -> int:
        f = extra("pyspark.sql.functions")
        self._store.remove_folder(batch)
        counted, rows = self._run.counted(frame)
        # The session of this query alone. A task that has a file open for each topic
        # and day need not sort its messages by them; and times are written as every
        # reader of Parquet knows them, and not as INT96.
        frame.sparkSession.conf.set(OPEN_FILES, str(FILES_OPEN_MAX))
        frame.sparkSession.conf.set(TIMES, "TIMESTAMP_MICROS")
        (
            counted.withColumn("day", f.to_date("published_at"))
            .write.partitionBy("topic", "day")
            .option("compression", "zstd")
            .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
            .parquet(for_spark(self._store.shown(batch)))
        )
        there = sum(
            rows_of(self._store, f"{batch}/{name}") for name in self._messages(batch)
        )
        if there != rows():
            raise SparkError(
                f"Spark has written {rows():,} messages, and {there:,} are in "
                f"{self._store.shown(batch)}: driver and executors must see the same "
                f"folder there."
            )
        self._store.touch(f"{batch}/{WHOLE}")
        return there

    def _messages(self, batch: str) -> list[str]:
        """Return the files of a batch, by their names below its folder."""
        return sorted(filter(MESSAGES.fullmatch, self._store.files(batch)))

    def _move_all(self, batch: str, stream: str, number: int) -> None:
        for name in self._messages(batch):
            to = place_of(stream, number, name)
            # An object store copies and then deletes: a crash may come in between.
            if self._store.exists(to):
                self._store.remove(f"{batch}/{name}")
            else:
                self._store.move(f"{batch}/{name}", to)

    def _clear(self, state: str, number: int) -> None:
        """Forget the batches before *number*: Spark never runs them again."""
        for name in self._store.names(state):
            if int(name.removeprefix(BATCH)) < number:
                self._store.remove_folder(f"{state}/{name}")


def place_of(stream: str, number: int, name: str) -> str:
    """Return where a file of a batch is moved to."""
    place, _, file = name.rpartition("/")
    return f"{place}/{stream[:ID_CHARACTERS]}-{number:06d}-{file}"
