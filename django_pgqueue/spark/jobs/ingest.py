"""
Ingest: topics of the log, to a Delta table by topic and day.

A run reads what there is when it begins, in batches, and ends; or, by a trigger, it
writes a batch now and then until it is stopped. How far it came stands in a checkpoint
beside the files, so the next run goes on there, and each message is in the table once,
whatever died in between.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import psycopg

from django_pgqueue.exceptions import PgQueueError, SparkError, SparkOptionError
from django_pgqueue.extras import arrow, extra
from django_pgqueue.extras import functions as f
from django_pgqueue.log.horizon import horizons
from django_pgqueue.pipeline.exports import note as note_position
from django_pgqueue.spark import options
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.lake.table import DAY, TRIES, LakeTable, checked_target
from django_pgqueue.spark.log.offsets import EARLIEST, FAIL, Offset, topics
from django_pgqueue.spark.option_table import duration
from django_pgqueue.spark.reader import arrow_schema
from django_pgqueue.spark.run import Run, connect
from django_pgqueue.spark.session import TIME_ZONE
from django_pgqueue.spark.store import Store, for_spark
from django_pgqueue.spark.tables import LOG
from django_pgqueue.spark.write.stream import query_id

# Locks: none.
INSTALLATION = "SELECT pgqueue_installation()::text"

# The trigger by which a run ends when it has read what there is.
AVAILABLE = "available-now"

# Else: between the begins of two batches. More is for a schedule: no Spark waits then.
TRIGGER_SECONDS_MIN, TRIGGER_SECONDS_MAX = 1, 3_600

# Between two looks whether the query has ended, or the run is to stop.
LOOK_SECONDS = 0.2


# Below the path: the checkpoint, where readers of Delta do not look.
ASIDE = "_pgqueue_ingest"


def _every_seconds(trigger: str) -> int | None:
    if trigger == AVAILABLE:
        return None
    seconds = int(duration("trigger", trigger).total_seconds())
    if TRIGGER_SECONDS_MIN <= seconds <= TRIGGER_SECONDS_MAX:
        return seconds
    raise SparkOptionError(
        f"The option trigger is {trigger!r}; it must be {AVAILABLE}, or a duration of "
        f"{TRIGGER_SECONDS_MIN} s to {TRIGGER_SECONDS_MAX:,} s. For batches that are "
        f"further apart, let a schedule start a run for each."
    )


def places(given: Mapping[str, Any]) -> list[str]:
    """Return what a run needs for itself: its checkpoint, and topics at its path."""
    target = given["path"].rstrip("/")
    topics = sorted({name.strip() for name in given["topic"].split(",")})
    return [
        f"the checkpoint {_checkpoint(given['checkpoint'], target)}",
        *(f"topic {name} at {target}" for name in topics),
    ]


def _checkpoint(said: str, target: str) -> str:
    return said.rstrip("/") or f"{target}/{ASIDE}/checkpoint"


@pipeline_job(
    name="ingest", chooses=("path", "checkpoint"), takes_out=("log",), places=places
)
def ingest(
    run: Run,
    *,
    topic: str = "",
    path: str = "",
    starting: str = "",
    trigger: str = AVAILABLE,
    max_rows_per_batch: int = options.ROWS_PER_BATCH,
    on_data_loss: str = FAIL,
    checkpoint: str = "",
) -> None:
    """
    Write topics of the log to a Delta table, by topic and day, each message once.

    Options: topic, one or several with commas between; path, a folder or a URI;
    starting, where the first run begins; trigger, available-now or a duration between
    two batches, until it is stopped; max_rows_per_batch; on_data_loss, fail or
    continue; checkpoint, another place for it.
    """
    if not path:
        raise SparkOptionError(
            "The pipeline job ingest has no path: give -o path=/srv/log."
        )
    target = checked_target(path)
    source = {
        "table": "log",
        "topic": topic,
        "starting": starting or EARLIEST,
        "maxRowsPerBatch": str(max_rows_per_batch),
        "onDataLoss": on_data_loss,
    }
    names = options.parse(source, streams=True).topics or ()
    every_seconds = _every_seconds(trigger)
    _check_topics(run, names)
    lake = LakeTable(run, target)
    checkpoint = _checkpoint(checkpoint, target)
    if not starting:
        _check_checkpoint(lake, names, checkpoint)
    bounds = _bounds(run, names)
    failed: list[PgQueueError] = []

    def write_batch(part: Any, number: int) -> None:
        # The session of this query alone: a day is one of UTC.
        part.sparkSession.conf.set(TIME_ZONE, "UTC")
        try:
            with run.whole():
                rows = add_batch(lake, part, query_id(part), number)
            run.rows_in += rows
            run.rows_out += rows
        except PgQueueError as error:
            # Through Java, an error of ours comes as a text.
            failed.append(error)
            raise

    query = (
        _log(run, source)
        .writeStream.foreachBatch(write_batch)
        .option("checkpointLocation", for_spark(checkpoint))
        .trigger(**_trigger(every_seconds))
        .start()
    )
    told = None
    try:
        while not query.awaitTermination(LOOK_SECONDS):
            # A batch that is under way looks by itself, before it begins.
            if not query.status["isTriggerActive"]:
                run.check()
                # It has written what there was, and waits for its time.
                run.turns += told is not None
            if every_seconds is not None:
                told = _tell_on(run, query, told, target)
    except Exception:
        if failed:
            raise failed[0] from None
        raise
    finally:
        query.stop()
    if every_seconds is None:
        _tell(run, query, bounds, target)


def _trigger(every_seconds: int | None) -> dict[str, Any]:
    """Return the trigger, as Spark takes it; None: until all is read that there is."""
    if every_seconds is None:
        return {"availableNow": True}
    return {"processingTime": f"{every_seconds} seconds"}


def _check_topics(run: Run, names: Sequence[str]) -> None:
    """Raise SparkOptionError for a topic that the database that is read has not."""
    try:
        dsn = run.read_dsn()
    except SparkError:
        return  # Only Spark's processes know it.
    # Where it cannot be asked, Spark says so, without the secrets of a DSN.
    with suppress(psycopg.Error), connect(dsn) as connection:
        topics(connection.cursor(), names)


def _log(run: Run, source: Mapping[str, str]) -> Any:
    """Return the topics as a streaming DataFrame."""
    given = {**source, **run.read_options}
    if "maxRowsPerSecond" not in given:
        # A task writes a file for each topic and day: no more tasks than run.
        given["partitions"] = str(run.session.sparkContext.defaultParallelism)
    return run.session.readStream.format("pgqueue").options(**given).load()


def _check_checkpoint(lake: LakeTable, names: Sequence[str], checkpoint: str) -> None:
    """Raise SparkError where messages are there, and no checkpoint knows of them."""
    if not has_any(lake, names):
        return
    if Store(checkpoint).exists("metadata"):
        return
    positions: dict[str, dict[str, int]] = {}
    for row in _highest_ids(lake):
        if row["topic"] in names:
            positions.setdefault(row["topic"], {})[str(row["partition"])] = row["id"]
    told = json.dumps(positions, sort_keys=True)
    raise SparkError(
        f"There are messages at {lake.target}, and no checkpoint at "
        f"{checkpoint}: from the beginning, they would be written twice. To go "
        f"on after what is there, say -o starting='{told}'; to write all again, take "
        f"another path."
    )


def _bounds(run: Run, names: Sequence[str]) -> dict[str, int]:
    """
    Return up to which id each topic can be read.

    Before the query begins, which fixes where it ends after that: what it has read when
    it ends is no less.
    """
    with run.reading() as cursor:
        limits = horizons(cursor)
        # Spark may read another database than that of the run, which has others.
        known = topics(cursor, None)
        return {name: limits.of(known[name].id) for name in names if name in known}


def _tell(run: Run, query: Any, bounds: Mapping[str, int], target: str) -> None:
    """Note how far each topic is read, for people and for retention."""
    progress = query.lastProgress
    if progress is None:
        run.note("There was nothing to read.")
        return
    _note(run, _offset(progress, "endOffset"), bounds, target)


def _tell_on(run: Run, query: Any, told: Any, target: str) -> Any:
    """Do the same for a query that goes on, after *told*; return what was told last."""
    progress = query.lastProgress
    if progress is None or progress["timestamp"] == told:
        return told
    end = _offset(progress, "endOffset")
    # Where nothing was found, all is read that the horizon of this look lets see.
    is_idle = end == _offset(progress, "startOffset")
    newest = _offset(progress, "latestOffset") if is_idle else None
    read = Offset.read(newest or end).topics
    run.notes.clear()
    _note(run, end, {name: read[name].lowest for name in end["topics"]}, target)
    return progress["timestamp"]


def _offset(progress: Any, name: str) -> Any:
    said = progress["sources"][0][name]
    return json.loads(said) if isinstance(said, str) else said


def _note(run: Run, offset: Any, read_to: Mapping[str, int], target: str) -> None:
    with run.transaction(is_brief=True) as cursor:
        cursor.execute(INSTALLATION)
        # Spark may read another database than that of the run.
        if cursor.fetchone() == (offset["installation"],):
            note_position(cursor, target, read_to, run=run.id)
    for name, topic in offset["topics"].items():
        positions = [topic["read_to"], *topic["partitions"].values()]
        run.note(
            f"{name}: read up to id {min(positions):,} in all of "
            f"{len(topic['partitions'])} partitions."
        )


# Messages ---------------------------------------------------------------------------
# Spark's executors write the files of a batch into a folder of its own, by topic and
# day, and one commit adds them to the table where they lie. The commit names the
# checkpoint and the number of the batch. A batch that runs again, whatever died, is
# found by that number, and of two runs that write one, Delta refuses the second. A new
# checkpoint has numbers of its own.

APPLICATION = "django_pgqueue.ingest"

PARTITION_BY = ["topic", DAY]

# The folder of batches; readers of Delta pass over names that begin with _.
FILES = "files"

# A file of messages, below the folder of its batch.
MESSAGES = re.compile(r"topic=([^/]*)/day=([^/]*)/[^/_.][^/]*")

OPEN_FILES = "spark.sql.maxConcurrentOutputFileWriters"
FILES_OPEN_MAX = 32
TIMES = "spark.sql.parquet.outputTimestampType"


def add_batch(lake: LakeTable, frame: Any, stream: str, number: int) -> int:
    """
    Add a batch of messages; return how many, 0 if an earlier run has added it.

    Args:
        frame: The batch.
        stream: The id of its checkpoint.
        number: Its number there.
    """
    application = f"{APPLICATION}.{stream}"
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
    action = extra("deltalake.transaction").AddAction
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
        .parquet(for_spark(f"{lake.target}/{folder}"))
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
            f"{lake.target}/{folder}: driver and executors must see the same folder "
            f"there."
        )
    return actions


def has_any(lake: LakeTable, topics: Sequence[str]) -> bool:
    """Whether a message of these topics was ever put there."""
    lake.latest()
    return any(file["partition.topic"] in topics for file in lake.files())


def _highest_ids(lake: LakeTable) -> list[dict[str, Any]]:
    """Return topic, partition and highest id of what is there."""
    dataset = lake.existing().to_pyarrow_dataset(filesystem=lake.store.filesystem)
    table = dataset.to_table(columns=["topic", "partition", "id"])
    found = table.group_by(["topic", "partition"]).aggregate([("id", "max")])
    return [{**row, "id": row["id_max"]} for row in found.to_pylist()]
