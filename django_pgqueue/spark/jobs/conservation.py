"""
Conservation: whether every job that was seen is still somewhere.

What was enqueued in an hour that is over is waiting, archived, exported or dead: their
sum stays as it was. All tables are counted in one snapshot, by PostgreSQL; days that
retention has dropped, in their export, by Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django_pgqueue.extras import arrow, compute
from django_pgqueue.pipeline import enqueued_hours, exports
from django_pgqueue.pipeline.ended_jobs import in_one_snapshot
from django_pgqueue.pipeline.enqueued_hours import Counting
from django_pgqueue.pipeline.exports import DAY, Departed
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.jobs.metrics import hour_of
from django_pgqueue.spark.lake.days import departed_batches
from django_pgqueue.spark.option_table import duration
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.slices import midnight

HOUR_MICROSECONDS = 3_600_000_000


@pipeline_job(name="conservation", takes_out=())
def conservation(
    run: Run, *, lookback: str = "2d", accept: bool = False, keep: str = "90d"
) -> int:
    """
    Count jobs by the hour of their enqueue, and whether any is missing: EnqueuedHour.

    Options: lookback, how far back hours are counted; accept, take what there is for
    what was enqueued; keep, how long hours are kept.
    """
    back, kept = duration("lookback", lookback), duration("keep", keep)
    until = hour_of(run.started_at)
    since = until - back
    with run.reading() as cursor:
        attached = ARCHIVE.attached(cursor)
        if attached:
            departed = exports.departed(cursor, first=since.date())
            since = max(since, _known_from(attached[0], departed))
        before = enqueued_hours.known(cursor, since, until)
        counting = Counting(cursor, since, until)
        with in_one_snapshot(cursor):
            _count(run, counting, since)
            # By the same snapshot: no day can leave the archive that was read in it.
            departed = exports.departed(cursor, first=since.date())
        _count_departed(run, counting, departed, since, until)
    seen = counting.seen()
    run.rows_in += sum(counts.all for counts in seen.values())
    enqueued = enqueued_hours.accounts({} if accept else before, seen)
    for key in before if accept else ():
        enqueued.setdefault(key, 0)
    missing = sum(enqueued.values()) - sum(counts.all for counts in seen.values())
    run.note(
        f"Of {sum(enqueued.values()):,} jobs, enqueued from {since:%Y-%m-%d %H:%M} UTC "
        f"on, {missing:,} are nowhere."
    )
    with run.transaction() as cursor:
        rows = enqueued_hours.store(cursor, enqueued, seen)
        enqueued_hours.forget(cursor, kept)
    return rows


def _known_from(first: Any, departed: Iterable[Departed]) -> datetime:
    """Return from when on no day is missing, of those that the archive had."""
    days = {day.day for day in departed}
    while first - DAY in days:
        first -= DAY
    return midnight(first)


def _count(run: Run, counting: Counting, since: datetime) -> None:
    """Count what is in the tables."""
    counting.count_waiting()
    begin, end = since, run.started_at + timedelta(hours=1)
    while begin < end:
        run.check()
        following = min(midnight(begin.date() + DAY), end)
        counting.count_archived(begin, following)
        begin = following
    counting.count_dead()


def _count_departed(
    run: Run,
    counting: Counting,
    departed: Iterable[Departed],
    since: datetime,
    until: datetime,
) -> None:
    """Count what is in files alone."""
    for day in departed:
        for batch in departed_batches(run, day, ("enqueued_at", "queue", "task")):
            at, *names = batch.columns
            hours = compute.divide(at.cast(arrow.int64()), HOUR_MICROSECONDS)
            is_meant = compute.and_(
                compute.greater_equal(at, since), compute.less(at, until)
            )
            table = arrow.table([hours, *names], ["hour", "queue", "task"])
            found = table.filter(is_meant).group_by(table.column_names)
            for row in found.aggregate([([], "count_all")]).to_pylist():
                hour = datetime.fromtimestamp(row["hour"] * 3_600, UTC)
                queue, task, count = row["queue"], row["task"], row["count_all"]
                counting.add("archived", hour, queue, task, count)
