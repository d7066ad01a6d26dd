"""What the doctor asks of the pipeline: is the archive exported, are jobs missing?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

from django_pgqueue.conf import Settings
from django_pgqueue.operators.findings import NAMES_MAX, Finding, finding, named
from django_pgqueue.pipeline import enqueued_hours, exports
from django_pgqueue.pipeline.enqueued_hours import Missing
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues import partitions
from django_pgqueue.tasks import registry

# Days are exported once a day; a day that was passed over twice is late.
LATE_DAYS_MAX = 2

WAY_OUT = (
    "Once a day: manage.py pgqueue_pipeline run export. What came of it: manage.py "
    "pgqueue_pipeline status export"
)
VERIFY = (
    "Put files back that have changed or are gone; manage.py pgqueue_pipeline run "
    "verify says what differs, and takes note when nothing does."
)


def export(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Do days of the archive wait for their export, and does anybody export them?"""
    if settings.export is None:
        yield _unset(exports.latest_target(cursor))
        return
    target = settings.export.path
    known = exports.known(cursor, target)
    pending = [
        day
        for day in exports.ended_days(cursor)
        if day not in known or not known[day].is_exported
    ]
    keep = settings.retention.archive
    expired = [] if keep is None else partitions.expired_partitions(cursor, keep=keep)
    waiting = [day for day in expired if day in pending]
    unseen = _unseen(cursor, target, expired)
    if unseen:
        problem = (
            f"{_days(unseen)}, past retention: kept, since no run of export has looked "
            f"at its files at {target} for {exports.FRESH.days} days, and this host "
            f"does not see them."
        )
        yield _warning(problem, unseen)
    differing = [
        day
        for day, manifest in known.items()
        if manifest.is_exported and manifest.error
    ]
    if differing:
        problem = (
            f"Something is wrong with {len(differing)} exported days at {target}, "
            f"{differing[0]} the first.{_error(known, differing)}"
        )
        yield _warning(problem, differing, VERIFY)
    if waiting:
        problem = f"{_days(waiting)}, past retention: kept until exported to {target}."
        yield _warning(f"{problem}{_error(known, waiting)}", waiting)
    elif pending and not any(day.is_exported for day in known.values()):
        problem = f"Nothing was exported to {target} yet. Retention waits for it."
        yield _warning(f"{problem}{_error(known, pending)}", pending)
    elif pending and pending[0] < _late(cursor):
        problem = f"{_days(pending)}, not exported to {target} yet."
        yield _warning(f"{problem}{_error(known, pending)}", pending)
    elif not unseen and not differing:
        yield Finding(
            check="export", severity="ok", what=f"No day waits for {target}.", value=[]
        )


def _unseen(cursor: Cursor, target: str, days: list[date]) -> list[date]:
    """Return the expired days that are exported, and whose files nobody has seen."""
    if not days or exports.local_folder(target) is not None:
        return []
    unchecked = exports.unchecked(cursor, target)
    return [day for day in days if day in unchecked]


def _unset(target: str | None) -> Finding:
    if target is None:
        return Finding(
            check="export",
            severity="ok",
            what="No export is set: retention drops days as they are.",
        )
    return Finding(
        check="export",
        severity="warning",
        what=f"Days are exported to {target}, and retention does not wait for it.",
        value=target,
        way_out=f"PGQUEUE = {{'EXPORT': {{'path': {target!r}}}}}",
    )


def _late(cursor: Cursor) -> date:
    today: date = partitions.today(cursor)
    return today - timedelta(days=LATE_DAYS_MAX)


def _warning(what: str, days: list[date], way_out: str = WAY_OUT) -> Finding:
    return Finding(
        check="export",
        severity="warning",
        what=what,
        value=[str(day) for day in days],
        way_out=way_out,
    )


def _days(days: list[date]) -> str:
    if len(days) == 1:
        return f"A day of the archive, {days[0]}"
    return f"{len(days)} days of the archive, {days[0]} the first"


def _error(known: dict[date, exports.Manifest], days: list[date]) -> str:
    errors = [known[day].error for day in days if day in known and known[day].error]
    return f" {errors[0]}" if errors else ""


# What is older was told for a week.
PERIOD = timedelta(days=7)

# Hours of tasks that are read.
ROWS_MAX = 10_000

RUN = "manage.py pgqueue_pipeline run conservation"


def conservation(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Are jobs missing, by the latest run of the pipeline job conservation?"""
    hours = enqueued_hours.missing(cursor, period=PERIOD, limit=ROWS_MAX)
    if hours is None:
        return  # Nobody has counted.
    found = [hour for hour in hours if not _may_be_gone(hour, settings)]
    count = sum(hour.missing for hour in found)
    found.sort(key=lambda hour: hour.missing, reverse=True)
    yield finding(
        check="conservation",
        wrong=found,
        what=f"{count:,} jobs neither wait nor are dead, archived or exported, though "
        f"they were there: {named([_missing_jobs(hour) for hour in found])}.",
        right="Every job that was counted is somewhere.",
        value=[_missing_jobs(hour) for hour in found[:NAMES_MAX]],
        limit=0,
        way_out="Look who deletes rows: people who may purge, SQL, a day of the "
        f"archive that was dropped by hand. When that was meant: {RUN} -o accept=true",
    )


def _may_be_gone(hour: Missing, settings: Settings) -> bool:
    """Whether these jobs leave no row, or retention has taken their dead letters."""
    keep = settings.retention.dead_letters
    if keep is not None and hour.age > keep:
        return True
    task = registry.tasks.get(hour.task)
    return task is not None and not task.resolve(hour.queue, settings).archive


def _missing_jobs(hour: Missing) -> str:
    return (
        f"{hour.missing:,} of {hour.enqueued:,} of {hour.task} in {hour.queue}, "
        f"enqueued from {hour.hour:%Y-%m-%d %H:%M} UTC on"
    )


EXAMINATIONS = (export, conservation)
