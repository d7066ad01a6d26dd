"""
From the lake: messages that ingest has written, and jobs that export has, by Spark.

They are written as any DataFrame is: all or none, once under a name. What is JSON in
them is so as the database had it; a value that redaction has hidden there is lost, and
refuses its row.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.extras import extra
from django_pgqueue.log.start import Start
from django_pgqueue.spark.lake.table import LakeTable
from django_pgqueue.spark.replay.archive import tell
from django_pgqueue.spark.replay.asked import QUEUE, Asked, moment_of
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.store import for_spark
from django_pgqueue.spark.tables import ARCHIVE, LOG, ddl
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
    since, until = (
        moment_of(bound, run.started_at) if isinstance(bound, Start) else None
        for bound in (asked.since, asked.until)
    )
    if asked.topic:
        frame = messages(run, asked.source, asked.topic, since, until)
        for bound, sign in ((asked.since, ">="), (asked.until, "<=")):
            if isinstance(bound, int):
                frame = frame.where(f"id {sign} {bound}")
    else:
        frame = jobs(run, asked, since, until)
    if asked.where is not None:
        frame = frame.where(asked.where)
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


def messages(
    run: Run,
    path: str,
    topic: str,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Any:
    """
    Return the messages of *topic* that ingest has written to *path*, as a DataFrame.

    Those from *since* on, and before *until*; None: there is no such end.

    Raises:
        SparkError: There are none.
    """
    files = _files(run, path, since, until, topic)
    f = extra("pyspark.sql.functions")
    columns = [column for column in LOG.columns if column.name != "topic"]
    # The folders of batches have none but the topic and the day.
    reader = run.session.read.schema(ddl(columns)).option("recursiveFileLookup", "true")
    frame = reader.parquet(*files).withColumn("topic", f.lit(topic))
    frame = frame.withColumn("day", f.to_date("published_at"))
    return _between(frame, "published_at", since, until)


def jobs(run: Run, asked: Asked, since: datetime | None, until: datetime | None) -> Any:
    """
    Return the jobs that export has written and that are meant, as a DataFrame.

    Raises:
        SparkError: There are none.
    """
    files = _files(run, asked.source, since, until)
    # Else Spark takes a queue 007 for a number.
    reader = run.session.read.schema(f"{ddl(ARCHIVE.columns)}, day date")
    frame = reader.option("basePath", for_spark(asked.source)).parquet(*files)
    f = extra("pyspark.sql.functions")
    for name, value in asked.jobs.items():
        frame = frame.where(f.col(name) == value)
    return _between(frame, "finished_at", since, until)


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


def _between(
    frame: Any, column: str, since: datetime | None, until: datetime | None
) -> Any:
    f = extra("pyspark.sql.functions")
    if since is not None:
        frame = frame.where(f.col(column) >= f.lit(since))
    if until is not None:
        frame = frame.where(f.col(column) < f.lit(until))
    return frame


def _files(
    run: Run,
    path: str,
    since: datetime | None,
    until: datetime | None,
    topic: str | None = None,
) -> list[str]:
    """Return the files of a table as Spark has them, without those of other days."""
    lake = LakeTable(run, path)
    if lake.latest() is None:
        raise SparkError(f"There is no Delta table at {path}.")
    found = [
        (f"{for_spark(path)}/{file['path']}", file["partition.day"])
        for file in lake.files()
        if topic is None or file.get("partition.topic") == topic
    ]
    if not found:
        raise SparkError(f"There is nothing of that in the Delta table at {path}.")
    meant = [
        name
        for name, day in found
        if (since is None or day >= since.date())
        and (until is None or day <= until.date())
    ]
    # Of one there is a DataFrame, even if it has no row that is meant.
    return meant or [found[0][0]]
