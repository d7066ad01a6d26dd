"""
Metrics: what each task did in each queue, hour by hour.

A job counts in the hour in which it ended, with all that it took: an hour that is over
does not change any more, but for a row whose transaction committed late. So the rows of
each hour are counted first, and only hours with more rows than were counted are read
and replaced. PostgreSQL does both, a day and an hour at a time.

What retention has dropped is read from its export, by Arrow, if it was not counted
before; it is not taken away where there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django_pgqueue.extras import arrow, compute
from django_pgqueue.pipeline import ended_jobs, enqueued_hours, exports, task_hours
from django_pgqueue.pipeline.ended_jobs import HOUR, READ_COLUMNS, Day, in_one_snapshot
from django_pgqueue.pipeline.enqueued_hours import Counting
from django_pgqueue.pipeline.exports import DAY, Departed
from django_pgqueue.pipeline.task_hours import Counted
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.jobs.export import as_csv, departed_batches
from django_pgqueue.spark.option_table import duration
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.slices import midnight


@pipeline_job(name="metrics", takes_out=())
def metrics(
    run: Run, *, lookback: str = "2d", full: bool = False, keep: str = "400d"
) -> int:
    """
    Count what each task did in each queue and hour: TaskHour.

    Options: lookback, how far before the last hour that was counted late rows are
    looked for; full, look through all that there is; keep, how long hours are kept.
    """
    kept = duration("keep", keep)
    with run.reading() as cursor:
        since = _since(cursor, run, duration("lookback", lookback), is_full=full)
        since = max(since, hour_of(run.started_at - kept) + HOUR)
        work = _Work(run, cursor, since)
        rows = sum(map(work.replace_day, work.days()))
    with run.transaction() as cursor:
        task_hours.forget(cursor, kept)
    return rows


class _Work:
    """The hours from *since* on: what is known of them, and what there is."""

    def __init__(self, run: Run, cursor: Any, since: datetime) -> None:
        self._run, self._cursor, self._since = run, cursor, since
        self._until = midnight(run.started_at.date() + DAY)
        self._known = task_hours.counted(cursor, since)
        self._letters = ended_jobs.letters(cursor, since, self._until)
        self._departed: Mapping[date, Departed] = {
            day.day: day for day in exports.departed(cursor, first=since.date())
        }
        run.rows_in += sum(self._letters.values())

    def days(self) -> list[date]:
        """Return the days that may have rows, oldest first."""
        last = self._run.started_at.date()
        seen = [
            *ARCHIVE.attached(self._cursor),
            *self._departed,
            *(hour.date() for hour in self._letters),
        ]
        first = max(min(seen, default=last), self._since.date())
        return [first + DAY * n for n in range((last - first).days + 1)]

    def replace_day(self, day: date) -> int:
        """Replace the hours of *day* that have changed; return how many rows."""
        self._run.check()
        departed = self._departed.get(day)
        if departed is not None and self._has_counted(departed):
            return 0
        with self._look_at(day, departed) as found:
            self._run.rows_in += sum(found.counts.values())
            changed = self._changed(day, found.counts)
            measured = found.measured(changed)
        for hour in changed:
            self._run.rows_in += found.counts.get(hour, 0) + self._letters.get(hour, 0)
        if not measured:
            return 0
        with self._run.transaction() as cursor:
            return task_hours.store(cursor, measured)

    def _look_at(
        self, day: date, departed: Departed | None
    ) -> AbstractContextManager[Day]:
        first = midnight(day)
        if departed is None:
            return ended_jobs.archived(self._cursor, first, self._since)
        rows = as_csv(departed_batches(self._run, departed, READ_COLUMNS))
        return ended_jobs.departed(self._cursor, first, self._since, rows)

    def _has_counted(self, departed: Departed) -> bool:
        """Whether no row of a day in files is missing, as its row tells."""
        first = midnight(departed.day)
        hours = [first + HOUR * n for n in range(24)]
        counted = sum(self._of(hour).archived for hour in hours)
        return counted >= departed.rows and not self._changed(departed.day, {})

    def _changed(self, day: date, counts: Mapping[datetime, int]) -> list[datetime]:
        """Return the hours of *day* that have more rows than were counted."""
        first = midnight(day)
        return [
            hour
            for hour in (first + HOUR * n for n in range(24))
            if counts.get(hour, 0) > self._of(hour).archived
            or self._letters.get(hour, 0) > self._of(hour).dead
        ]

    def _of(self, hour: datetime) -> Counted:
        return self._known.get(hour, Counted(0, 0))


def _since(cursor: Any, run: Run, lookback: timedelta, *, is_full: bool) -> datetime:
    last = None if is_full else task_hours.last(cursor)
    if last is None:
        return datetime(1970, 1, 1, tzinfo=UTC)
    return hour_of(min(last, run.started_at) - lookback)


def hour_of(moment: datetime) -> datetime:
    """Return the hour (UTC) of *moment*."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


# Conservation -----------------------------------------------------------------------
# What was enqueued in an hour that is over is waiting, archived, exported or dead:
# their sum stays as it was. All tables are counted in one snapshot, by PostgreSQL; days
# that retention has dropped, in their export, by Arrow.

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
