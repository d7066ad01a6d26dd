"""
Metrics: what each task did in each queue, hour by hour.

A job counts in the hour in which it ended, with all that it took: an hour that is over
does not change any more, but for a row whose transaction committed late. So a first,
narrow read counts the rows of each hour, and only hours with more rows than were
counted are read as a whole and replaced. What retention has dropped is read from its
export, and is not taken away where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from django_pgqueue.extras import extra
from django_pgqueue.pipeline import task_hours
from django_pgqueue.pipeline.task_hours import Counted
from django_pgqueue.spark.durations import duration
from django_pgqueue.spark.export.departed import with_departed
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.run import Run

HOUR = timedelta(hours=1)

PERCENTILES = (0.5, 0.95, 0.99)

# Durations keep so many digits: an error of half a percent at most, and a thousand
# values for each power of ten, however many jobs there are. So percentiles are exact
# for what is left, in little memory.
DIGITS = 3

# What an error says, as far as it is counted here.
ERRORS = "array<struct<kind:string,delivery:bigint,ran_seconds:double>>"

# Where a redrive has noted the deliveries until then.
DELIVERIES_BEFORE = "$['pgqueue.deliveries_before']"

OF_BOTH = (
    "id",
    "queue",
    "task",
    "headers",
    "run_after",
    "enqueued_at",
    "attempt",
    "crashes",
    "deliveries",
    "errors",
    "started_at",
    "finished_at",
)

ARCHIVED = (*OF_BOTH, "state")


@pipeline_job(name="metrics", takes_out=(), pushes_filters=True)
def metrics(
    run: Run, *, lookback: str = "2d", full: bool = False, keep: str = "400d"
) -> int:
    """
    Count what each task did in each queue and hour: TaskHour.

    Options: lookback, how far before the last hour that was counted late rows are
    looked for; full, look through all that there is; keep, how long hours are kept.
    """
    f = extra("pyspark.sql.functions")
    since = _since(run, duration("lookback", lookback), is_full=full)
    kept = duration("keep", keep)
    since = max(since, _hour(run.started_at - kept) + HOUR)
    archive = run.read("archive", columns=ARCHIVED)
    archive = with_departed(run, archive, ARCHIVED, since)
    archive = archive.where(f.col("finished_at") >= f.lit(since))
    dead_letters = run.read(
        "dead_letters",
        columns=(*OF_BOTH, "reason"),
        where=f.col("finished_at") >= f.lit(since),
    )
    changed = changed_hours(run, archive, dead_letters, since)
    run.check()
    hours = per_hour(
        _within(archive, changed).withColumn("reason", f.lit(None).cast("string")),
        _within(dead_letters, changed).withColumn("state", f.lit("dead")),
    )
    first, *others = task_hours.COLUMNS
    rows = hours.select(_epoch(f.col(first)), *others).collect()
    with run.transaction() as cursor:
        count = task_hours.store(
            cursor, ((moment(epoch), *rest) for epoch, *rest in rows)
        )
        task_hours.forget(cursor, kept)
    return count


def changed_hours(
    run: Any, archive: Any, dead_letters: Any, since: datetime
) -> list[datetime]:
    """Return the hours that have more rows than were counted, in order."""
    f = extra("pyspark.sql.functions")
    hour = _epoch(f.date_trunc("hour", "finished_at")).alias("hour")
    found: dict[datetime, Counted] = {}
    for place, frame in enumerate((archive, dead_letters)):
        for epoch, count in frame.groupBy(hour).count().collect():
            counts = [*found.get(moment(epoch), Counted(0, 0))]
            counts[place] = count
            found[moment(epoch)] = Counted(*counts)
            run.rows_in += count
    with run.transaction() as cursor:
        known = task_hours.counted(cursor, since)
    nothing = Counted(0, 0)
    changed = sorted(
        at
        for at, seen in found.items()
        if seen.archived > known.get(at, nothing).archived
        or seen.dead > known.get(at, nothing).dead
    )
    # They are read once more.
    run.rows_in += sum(sum(found[at]) for at in changed)
    return changed


def per_hour(archive: Any, dead_letters: Any) -> Any:
    """Return the columns of task_hours.COLUMNS for jobs that have ended."""
    f = extra("pyspark.sql.functions")
    jobs = _measured(archive.unionByName(dead_letters))
    ended = {
        f"is_{state}": f.sum((f.col("state") == state).cast("bigint")).alias(name)
        for state, name in (
            ("succeeded", "succeeded"),
            ("dead", "dead"),
            ("cancelled", "cancelled"),
            ("expired", "expired"),
        )
    }
    summed = [
        f.sum(f.col(f"job_{name}").cast("bigint")).alias(name)
        for name in ("started", "failed", "retried", "crashed")
    ]
    marks = f.array(*(f.lit(mark) for mark in PERCENTILES))
    counted = jobs.groupBy("hour", "queue", "task").agg(
        *ended.values(),
        *summed,
        f.percentile("wait", marks).alias("waits"),
        f.max("wait").alias("oldest_wait"),
        f.percentile("run", marks).alias("runs"),
        f.sum("job_seconds").alias("worker_seconds"),
    )
    return counted.select(
        *task_hours.KEY,
        *task_hours.COUNTS,
        *_spread("wait", "waits"),
        "oldest_wait",
        *_spread("run", "runs"),
        "worker_seconds",
    )


def _measured(jobs: Any) -> Any:
    """Return what each job adds to its hour."""
    f = extra("pyspark.sql.functions")
    before = f.coalesce(
        f.get_json_object("headers", DELIVERIES_BEFORE).cast("bigint"), f.lit(0)
    )
    jobs = jobs.withColumn("before", before).withColumn(
        "failures",
        f.filter(
            f.coalesce(f.from_json("errors", ERRORS), f.array().cast(ERRORS)),
            # Those before the latest redrive were counted with the dead letter.
            lambda error: (
                (error["kind"] == "error") & (error["delivery"] > f.col("before"))
            ),
        ),
    )
    ran = _between(f.col("started_at"), f.col("finished_at"))
    due = f.greatest("enqueued_at", "run_after")
    waited = _between(due, f.col("started_at"))
    # The last delivery's own failure is a part of `ran`.
    earlier = f.filter(
        "failures", lambda error: error["delivery"] < f.col("deliveries")
    )
    ran_earlier = f.aggregate(
        earlier,
        f.lit(0.0),
        lambda total, error: total + f.coalesce(error["ran_seconds"], f.lit(0.0)),
    )
    return jobs.select(
        f.date_trunc("hour", "finished_at").alias("hour"),
        "queue",
        "task",
        "state",
        (f.col("deliveries") - f.col("before")).alias("job_started"),
        f.size("failures").alias("job_failed"),
        f.greatest(f.col("attempt") - 1, f.lit(0)).alias("job_retried"),
        f.col("crashes").alias("job_crashed"),
        # Only the last start is known, so a second delivery hides the first one's wait.
        f.when(f.col("deliveries") == 1, _rounded(waited)).alias("wait"),
        _rounded(ran).alias("run"),
        (f.coalesce(ran, f.lit(0.0)) + ran_earlier).alias("job_seconds"),
    )


def _between(start: Any, end: Any) -> Any:
    """Return the seconds from *start* to *end*, 0 at least; NULL where one is."""
    f = extra("pyspark.sql.functions")
    micros = f.unix_micros(end) - f.unix_micros(start)
    # greatest() leaves NULLs out.
    return f.when(micros.isNotNull(), f.greatest(micros, f.lit(0)) / f.lit(1e6))


def _rounded(seconds: Any) -> Any:
    """Return *seconds* with DIGITS digits; microseconds are the finest there are."""
    f = extra("pyspark.sql.functions")
    micros = f.rint(seconds * 1e6)
    step = f.pow(
        f.lit(10.0), f.greatest(f.floor(f.log10(micros)) - DIGITS + 1, f.lit(0))
    )
    return f.when(micros > 0, f.rint(micros / step) * step / 1e6).when(
        micros == 0, f.lit(0.0)
    )


def _spread(name: str, column: str) -> Iterator[Any]:
    f = extra("pyspark.sql.functions")
    for place, mark in enumerate(PERCENTILES):
        yield f.col(column)[place].alias(f"{name}_p{mark * 100:.0f}")


def _within(frame: Any, hours: list[datetime]) -> Any:
    f = extra("pyspark.sql.functions")
    if not hours:
        return frame.where(f.lit(False))
    epochs = ", ".join(str(int(hour.timestamp())) for hour in hours)
    # The first two conditions spare tasks and pages; PostgreSQL answers them.
    return frame.where(
        (f.col("finished_at") >= f.lit(hours[0]))
        & (f.col("finished_at") < f.lit(hours[-1] + HOUR))
        & f.expr(f"unix_seconds(date_trunc('hour', finished_at)) IN ({epochs})")
    )


def _since(run: Any, lookback: timedelta, *, is_full: bool) -> datetime:
    with run.transaction() as cursor:
        last = None if is_full else task_hours.last(cursor)
    if last is None:
        return datetime(1970, 1, 1, tzinfo=UTC)
    return _hour(min(last, run.started_at) - lookback)


def _hour(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _epoch(column: Any) -> Any:
    # A moment would come as the local time of this process, in which, when summer time
    # ends, an hour happens twice.
    return extra("pyspark.sql.functions").unix_seconds(column)


def moment(epoch: int) -> datetime:
    """Return the moment so many seconds after 1970 began."""
    return datetime.fromtimestamp(epoch, UTC)
