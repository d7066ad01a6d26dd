"""
From files: messages that ingest has written, and jobs that export has, by Spark.

They are written as any DataFrame is: all or none, once under a name. What is JSON in
them is so as the database had it; a value that redaction has hidden there is lost, and
refuses its row.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.extras import extra
from django_pgqueue.spark.export.delta import actions_of, found_table
from django_pgqueue.spark.export.store import for_spark
from django_pgqueue.spark.replay.archive import tell
from django_pgqueue.spark.replay.asked import QUEUE, Asked, moment_of
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.tables import ARCHIVE, LOG, Table, ddl
from django_pgqueue.spark.write.parts import OF_LOG

# What a job that is replayed keeps.
OF_JOB = (
    *("task", "queue", "args", "kwargs", "headers", "priority", "max_attempts"),
    *("lane", "lane_capacity", "lane_spacing", "lane_burst", "lane_policy"),
)
# What a message that is published again keeps; its id is for the order.
OF_MESSAGE = ("id", "name", "key", "payload", "headers")


def replay(run: Run, asked: Asked, *, is_preview: bool) -> int:
    """
    Replay what files have; return how many messages or jobs that are.

    Raises:
        SparkError: There are no such files, or a row was refused.
    """
    if asked.topic:
        frame = messages(run, asked.source, asked.format, asked.topic)
        frame = _narrowed(run, frame, asked, "published_at", "id")
    else:
        frame = _narrowed(run, jobs(run, asked), asked, "finished_at", None)
    frame = once(frame)
    if is_preview:
        preview(run, frame, of_jobs=not asked.topic)
        return 0
    given: dict[str, Any] = {
        "name": asked.name,
        "perSecond": None if asked.rate is None else str(asked.rate),
        "refusedPath": asked.refused_path,
    }
    if not asked.topic:
        return _enqueue(run, frame, asked, given)
    if asked.to_topic is None:
        frame = frame.select(*OF_LOG)
        return run.enqueue(frame, topic=asked.topic, receiver=asked.to, **given)
    f = extra("pyspark.sql.functions")
    rest = f.expr(f"substring(name, {len(asked.topic) + 1})")
    frame = frame.select(*OF_MESSAGE).withColumn(
        "name", f.concat(f.lit(asked.to_topic), rest)
    )
    return run.enqueue(frame, topic=asked.to_topic, encoded="true", **given)


def messages(run: Run, path: str, kind: str, topic: str) -> Any:
    """
    Return the messages of *topic* that ingest has written to *path*, as a DataFrame.

    Raises:
        SparkError: There are none.
    """
    if kind == "parquet":
        return _parquet(run, path, [f"{path}/topic={topic}"], LOG)
    return _parquet(run, path, _delta_files(path, f"/topic={topic}/"), LOG)


def jobs(run: Run, asked: Asked) -> Any:
    """
    Return the jobs that export has written and that are meant, as a DataFrame.

    Raises:
        SparkError: There are none.
    """
    path = asked.source
    files = [path] if asked.format == "parquet" else _delta_files(path, "")
    frame = _parquet(run, path, files, ARCHIVE)
    f = extra("pyspark.sql.functions")
    for name, value in asked.jobs.items():
        frame = frame.where(f.col(name) == value)
    return frame


def preview(run: Run, frame: Any, *, of_jobs: bool) -> None:
    """Note how many messages by name and day, or jobs by task and day, there are."""
    f = extra("pyspark.sql.functions")
    name, at = ("task", "finished_at") if of_jobs else ("name", "published_at")
    others = f.count("message_id") if of_jobs else f.lit(0)
    found = (
        frame.groupBy(name, f.to_date(at).cast("string").alias("on"))
        .agg(f.count(f.lit(1)), others)
        .orderBy(name, "on")
        .collect()
    )
    tell(run, [tuple(row) for row in found], "jobs" if of_jobs else "messages")


def _enqueue(run: Run, frame: Any, asked: Asked, given: dict[str, Any]) -> int:
    f = extra("pyspark.sql.functions")
    frame = frame.where(f.col("message_id").isNull()).select(*OF_JOB)
    into = asked.to.removeprefix(QUEUE)
    if into:
        frame = frame.withColumn("queue", f.lit(into))
    return run.enqueue(frame, encoded="true", **given)


def _narrowed(run: Run, frame: Any, asked: Asked, at: str, number: str | None) -> Any:
    """Return the rows of the range; the folders of other days are not opened."""
    f = extra("pyspark.sql.functions")
    for bound, is_end in ((asked.since, False), (asked.until, True)):
        if bound is None:
            continue
        if isinstance(bound, int):
            assert number is not None
            column = f.col(number)
            frame = frame.where(column <= bound if is_end else column >= bound)
            continue
        moment = moment_of(bound, run.started_at)
        if moment is not None:
            frame = narrowed(frame, at, moment, is_end=is_end)
    return frame if asked.where is None else frame.where(asked.where)


def once(frame: Any) -> Any:
    """Return each row once: one that is being rewritten stands in two files."""
    return frame.dropDuplicates(["id"])


def narrowed(frame: Any, at: str, moment: datetime, *, is_end: bool) -> Any:
    """Return the rows before a moment, or at or after it."""
    f = extra("pyspark.sql.functions")
    day, column = f.lit(moment.date()), f.col(at)
    if is_end:
        return frame.where((column < f.lit(moment)) & (f.col("day") <= day))
    return frame.where((column >= f.lit(moment)) & (f.col("day") >= day))


def _parquet(run: Run, path: str, files: list[str], table: Table) -> Any:
    # Else Spark takes the columns of the oldest file, and a queue 007 for a number.
    schema = f"{ddl(table.columns)}, day date"
    reader = run.session.read.schema(schema).option("basePath", for_spark(path))
    try:
        return reader.parquet(*map(for_spark, files))
    except Exception as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        raise SparkError(f"There are no files at {files[0]}.") from None


def _delta_files(path: str, folder: str) -> list[str]:
    """Return files of a Delta table: Parquet, in folders by topic or queue, and day."""
    table = found_table(path)
    if table is None:
        raise SparkError(f"There is no Delta table at {path}.")
    # Its URIs have a path with a space in another spelling.
    names = [f"/{action['path']}" for action in actions_of(table)]
    files = [f"{path}{name}" for name in names if folder in name]
    if not files:
        raise SparkError(f"There is nothing of that in the Delta table at {path}.")
    return files
