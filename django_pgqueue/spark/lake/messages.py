"""
Messages: batches of the log become files of a Delta table, each of them once.

Spark's executors write the files of a batch into a folder of its own, by topic and day,
and one commit adds them to the table where they lie. The commit names the checkpoint
and the number of the batch. A batch that runs again, whatever died, is found by that
number, and of two runs that write one, Delta refuses the second. A new checkpoint has
numbers of its own.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from django_pgqueue.exceptions import SparkError
from django_pgqueue.extras import extra
from django_pgqueue.spark.lake.table import DAY, TRIES, LakeTable
from django_pgqueue.spark.reader import arrow_schema
from django_pgqueue.spark.store import for_spark
from django_pgqueue.spark.tables import LOG

APPLICATION = "django_pgqueue.ingest"

PARTITION_BY = ["topic", DAY]

# The folder of batches; readers of Delta pass over names that begin with _.
FILES = "files"

# A file of messages, below the folder of its batch.
MESSAGES = re.compile(r"topic=([^/]*)/day=([^/]*)/[^/_.][^/]*")

OPEN_FILES = "spark.sql.maxConcurrentOutputFileWriters"
FILES_OPEN_MAX = 32
TIMES = "spark.sql.parquet.outputTimestampType"


def write_batch(lake: LakeTable, frame: Any, stream: str, number: int) -> int:
    """
    Add a batch of messages; return how many, 0 if an earlier run has added it.

    Args:
        frame: The batch.
        stream: The id of its checkpoint.
        number: Its number there.
    """
    application = f"{APPLICATION}.{stream}"
    arrow = extra("pyarrow")
    schema = arrow_schema(LOG.columns).append(arrow.field(DAY, arrow.date32()))
    for tries_left in reversed(range(TRIES)):
        table = lake.made(schema, PARTITION_BY)
        before = table.transaction_version(application)
        if before is not None and before >= number:
            return 0
        with lake.run.transaction(is_brief=True):
            pass  # The run is live, and what it commits follows from this version.
        folder = f"{FILES}/{uuid4().hex}"
        actions = _written(lake, frame, folder)
        if not actions:
            return 0
        transactions = {application: number}
        for action in actions:
            # No other checkpoint writes a topic at the same time.
            topic = action.partition_values["topic"]
            transactions[f"{APPLICATION}.of.{topic}"] = lake.run.id
        try:
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                commit_properties=lake.commit_properties(transactions),
            )
            return sum(json.loads(action.stats)["numRecords"] for action in actions)
        except lake.refused:
            lake.store.remove_folder(folder)
            if not tries_left:
                raise
    raise AssertionError("The last try has raised.")


def _written(lake: LakeTable, frame: Any, folder: str) -> list[Any]:
    """Let Spark write a batch; return the actions that add its files to the table."""
    f, action = extra("pyspark.sql.functions"), extra("deltalake.transaction").AddAction
    store = lake.store
    counted, rows = lake.run.counted(frame)
    # The session of this query alone. A task that has a file open for each topic and
    # day need not sort its messages by them; and times are written as every reader of
    # Parquet knows them, and not as INT96.
    frame.sparkSession.conf.set(OPEN_FILES, str(FILES_OPEN_MAX))
    frame.sparkSession.conf.set(TIMES, "TIMESTAMP_MICROS")
    (
        counted.withColumn(DAY, f.to_date("published_at"))
        .write.partitionBy(*PARTITION_BY)
        .option("compression", "zstd")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .parquet(for_spark(store.shown(folder)))
    )
    actions = []
    there = 0
    for name, size in sorted(store.files(folder).items()):
        match = MESSAGES.fullmatch(name)
        if match is None:
            continue
        with store.filesystem.open_input_file(f"{folder}/{name}") as opened:
            count = extra("pyarrow.parquet").read_metadata(opened).num_rows
        there += count
        actions.append(
            action(
                path=f"{folder}/{name}",
                size=size,
                partition_values={"topic": match[1], DAY: match[2]},
                modification_time=int(time.time() * 1_000),
                data_change=True,
                stats=json.dumps({"numRecords": count}),
            )
        )
    if there != rows():
        raise SparkError(
            f"Spark has written {rows():,} messages, and {there:,} are in "
            f"{store.shown(folder)}: driver and executors must see the same folder "
            f"there."
        )
    return actions


def has_any(lake: LakeTable, topics: Sequence[str]) -> bool:
    """Whether a message of these topics was ever put there."""
    lake.latest()
    return any(file["partition.topic"] in topics for file in lake.files())


def positions(lake: LakeTable) -> list[dict[str, Any]]:
    """Return topic, partition and highest id of what is there."""
    dataset = lake.existing().to_pyarrow_dataset(filesystem=lake.store.filesystem)
    table = dataset.to_table(columns=["topic", "partition", "id"])
    found = table.group_by(["topic", "partition"]).aggregate([("id", "max")])
    return [{**row, "id": row["id_max"]} for row in found.to_pylist()]
