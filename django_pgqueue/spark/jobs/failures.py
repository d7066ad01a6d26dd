"""
Failures: what goes wrong, by kind and hour.

The errors of dead letters, of the archive and of jobs that wait for their next attempt,
each counted once wherever its job is by now. What the reader has masked stays masked:
the secrets of messages and tracebacks never come here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django_pgqueue.extras import extra
from django_pgqueue.pipeline import failures as stored
from django_pgqueue.redaction.fingerprint import failed_entries, fingerprint
from django_pgqueue.spark.durations import duration
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.run import Run

# Names of tasks that a failure keeps, and characters of its sample.
TASKS_MAX = 20
SAMPLE_CHARACTERS_MAX = 10_000

# One error of one job.
FOUND = (
    "job_id: bigint, task: string, delivery: bigint, at: double, is_dead: boolean,"
    " fingerprint: string, error_class: string, message: string, place: string,"
    " sample_message: string, sample_traceback: string"
)

OF_ALL = ("id", "task", "deliveries", "enqueued_at", "errors")


@pipeline_job(name="failures", takes_out=(), pushes_filters=True)
def failures(run: Run, *, keep: str = "90d") -> int:
    """
    Group all errors by class, message and place, and count them by the hour: Failure.

    Options: keep, how long hours are kept.
    """
    kept = duration("keep", keep)
    f = extra("pyspark.sql.functions")
    counted, rows = run.counted(_failed(run))
    errors = _errors(counted).persist()
    try:
        hours = [
            (name, _moment(epoch), count)
            for name, epoch, count in errors.groupBy(
                "fingerprint",
                (f.floor(f.col("at") / 3600) * 3600).alias("epoch"),
            )
            .count()
            .collect()
        ]
        found = [_row(row) for row in _by_fingerprint(errors).collect()]
    finally:
        errors.unpersist()
    run.rows_in += rows()
    with run.transaction() as cursor:
        return stored.store(cursor, found, hours, keep=kept)


def _failed(run: Run) -> Any:
    """Return the rows of all tables that have an error, or a reason."""
    f = extra("pyspark.sql.functions")
    nothing = {
        "reason": f.lit(None).cast("string"),
        "finished_at": f.lit(None).cast("timestamp"),
    }
    jobs, archive = (run.read(name, columns=OF_ALL) for name in ("jobs", "archive"))
    dead_letters = run.read("dead_letters", columns=(*OF_ALL, "reason", "finished_at"))
    return (
        dead_letters.unionByName(jobs.withColumns(nothing))
        .unionByName(archive.withColumns(nothing))
        # Most jobs have no error; and a dead letter without one has its reason.
        .where((f.col("errors") != "[]") | f.col("reason").isNotNull())
    )


def _errors(rows: Any) -> Any:
    """Return a row for each error."""
    f = extra("pyspark.sql.functions")
    # A plain function of Python: those of Arrow need pandas, which nothing else does.
    found = f.udf(_found, f"array<struct<{FOUND}>>", useArrow=False)
    errors = rows.select(
        found(
            "id",
            "task",
            "errors",
            "reason",
            f.unix_micros(f.coalesce("finished_at", "enqueued_at")) / f.lit(1e6),
        ).alias("found")
    )
    # A job that moved while it was read is in two of the tables.
    return errors.selectExpr("inline(found)").dropDuplicates(
        ["job_id", "delivery", "at", "fingerprint"]
    )


def _by_fingerprint(errors: Any) -> Any:
    f = extra("pyspark.sql.functions")
    sample = f.max_by(
        f.struct("job_id", "sample_message", "sample_traceback"),
        f.struct("at", "job_id"),
    )
    return (
        errors.groupBy("fingerprint", "error_class", "message", "place")
        .agg(
            f.countDistinct("job_id").alias("jobs"),
            f.countDistinct(f.when(f.col("is_dead"), f.col("job_id"))).alias("dead"),
            f.sort_array(f.collect_set("task")).alias("tasks"),
            f.min("at").alias("first_seen"),
            f.max("at").alias("last_seen"),
            sample.alias("sample"),
        )
        .select(
            *("fingerprint", "error_class", "message", "place", "jobs", "dead"),
            f.slice("tasks", 1, TASKS_MAX).alias("tasks"),
            *("first_seen", "last_seen", "sample.*"),
        )
    )


def _row(row: Any) -> tuple[Any, ...]:
    """Return the values of runs.failures.COLUMNS."""
    tasks, first, last = row["tasks"], row["first_seen"], row["last_seen"]
    return (
        *row[:6],
        json.dumps(tasks, ensure_ascii=False),
        _moment(first),
        _moment(last),
        *row[9:],
    )


def _moment(epoch: float) -> datetime:
    return datetime.fromtimestamp(epoch, UTC)


# On executors ------------------------------------------------------------------------


def _found(
    job_id: int, task: str, errors: str, reason: str | None, ended_at: float
) -> list[dict[str, Any]]:
    return list(errors_of(job_id, task, errors, reason, ended_at))


def errors_of(
    job_id: int, task: str, errors: str | None, reason: str | None, ended_at: float
) -> Iterator[dict[str, Any]]:
    """
    Yield what is known of each error of a job, and of a dead letter without one.

    Args:
        job_id: Its id.
        task: Its task.
        errors: Its errors, as JSON.
        reason: That of a dead letter; None: of another row.
        ended_at: Seconds since 1970, of an error that does not say when it happened.
    """
    failed = failed_entries(errors, reason)
    for entry in failed:
        kind = fingerprint(entry)
        yield {
            "job_id": job_id,
            "task": task,
            "delivery": _whole(entry.get("delivery")),
            "at": _at(entry.get("at"), ended_at),
            "is_dead": reason is not None and entry is failed[-1],
            "fingerprint": kind.digest,
            "error_class": kind.error_class,
            "message": kind.message,
            "place": kind.place,
            "sample_message": _sample(entry.get("message")),
            "sample_traceback": _sample(entry.get("traceback")),
        }


def _at(text: object, otherwise: float) -> float:
    """Return when it happened; *otherwise* where the entry does not say."""
    try:
        said = datetime.fromisoformat(text if isinstance(text, str) else "")
    except ValueError:
        return otherwise
    try:
        return said.replace(tzinfo=said.tzinfo or UTC).timestamp()
    except (OverflowError, ValueError):
        return otherwise


def _whole(value: object) -> int:
    if isinstance(value, int) and 0 <= value < 2**31:
        return value
    return 0


def _sample(value: object) -> str:
    text = value if isinstance(value, str) else ""
    if len(text) > SAMPLE_CHARACTERS_MAX:
        # The end says where it happened.
        text = f"… {text[-SAMPLE_CHARACTERS_MAX:]}"
    return text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()
