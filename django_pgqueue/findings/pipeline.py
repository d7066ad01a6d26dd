"""The pipeline: does ingest go on, is the archive exported, are jobs missing?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from typing import Any

from django_pgqueue.findings.look import Look
from django_pgqueue.findings.registry import (
    Finding,
    Findings,
    finding,
    verdict,
)
from django_pgqueue.log import doctor
from django_pgqueue.operators.human import NAMES_MAX, age, named
from django_pgqueue.pipeline import enqueued_hours, exports
from django_pgqueue.postgres.day_tables import ARCHIVE, today
from django_pgqueue.tasks import registry

# A run of ingest that is to go on has not told how far it is, for so long and for so
# many triggers.
INGEST_SECONDS_MAX, INGEST_TRIGGERS_MAX = 300.0, 10

# Days are exported once a day; a day that was passed over twice is late.
LATE_DAYS_MAX = 2

EXPORT = (
    "Once a day: manage.py pgqueue_pipeline run export. What came of it: manage.py "
    "pgqueue_pipeline status export"
)
VERIFY = (
    "Put files back that have changed or are gone; manage.py pgqueue_pipeline run "
    "verify says what differs, and takes note when nothing does."
)

# Missing jobs are reported for a week; and how many hours of tasks are read.
PERIOD = timedelta(days=7)
ROWS_MAX = 10_000


@finding("ingest_behind")
def ingest_behind(look: Look) -> Findings:
    """Does the pipeline job ingest go on, where it is to?"""
    texts = [
        f"run {row.id}, with trigger={row.trigger}, is {row.state} and has not for "
        f"{age(row.seconds)}"
        for row in look.rows(doctor.STALLED_INGEST)
        if row.seconds
        > max(INGEST_SECONDS_MAX, INGEST_TRIGGERS_MAX * row.trigger_seconds)
    ]
    yield verdict(
        texts,
        f"The pipeline job ingest is to go on all the time, and to tell how far it is: "
        f"{named(texts)}.",
        "manage.py pgqueue_pipeline status ingest has its error; start it again with "
        "--restarts 10. If it is to end, pgqueue_pipeline stop ingest.",
        right="The pipeline job ingest goes on, or was not asked to.",
        value=len(texts),
        limit=0,
    )


@finding("export")
def export(look: Look) -> Findings:
    """Do days of the archive wait for their export, and does anybody export them?"""
    if look.settings.export is None:
        yield _unset(exports.latest_target(look.cursor))
        return
    target = look.settings.export.path
    known = exports.known(look.cursor, target)
    found = [*_troubles(look, target, known)]
    for days, what, way_out in found:
        errors = [known[day].error for day in days if day in known]
        error = next((f" {each}" for each in errors if each), "")
        value = [str(day) for day in days]
        yield verdict(True, f"{what}{error}", way_out, value=value)
    if not found:
        yield Finding(what=f"No day waits for {target}.", value=[])


def _unset(target: str | None) -> Finding:
    return verdict(
        target is not None,
        f"Days are exported to {target}, and retention does not wait for it.",
        f"PGQUEUE = {{'EXPORT': {{'path': {target!r}}}}}",
        right="No export is set: retention drops days as they are.",
        value=target,
    )


def _troubles(
    look: Look, target: str, known: dict[date, exports.ExportedDay]
) -> Iterator[tuple[Sequence[date], str, str]]:
    """Yield days, what is wrong with them, and what to do."""
    pending = [
        day
        for day in exports.ended_days(look.cursor)
        if day not in known or not known[day].is_exported
    ]
    keep, expired = look.settings.retention.archive, list[date]()
    if keep is not None:
        expired = ARCHIVE.expired(look.cursor, keep)
    unchecked = exports.unchecked(look.cursor, target)
    if unseen := [day for day in expired if day in unchecked]:
        text = (
            f"{_days(unseen)}, past retention: kept, since no run of export has looked "
            f"at its files at {target} for {exports.FRESH.days} days."
        )
        yield unseen, text, EXPORT
    if differing := [day for day, it in known.items() if it.is_exported and it.error]:
        text = (
            f"Something is wrong with {len(differing)} exported days at {target}, "
            f"{differing[0]} the first."
        )
        yield differing, text, VERIFY
    late = today(look.cursor) - timedelta(days=LATE_DAYS_MAX)
    if waiting := [day for day in expired if day in pending]:
        text = f"{_days(waiting)}, past retention: kept until exported to {target}."
        yield waiting, text, EXPORT
    elif pending and not any(day.is_exported for day in known.values()):
        text = f"Nothing was exported to {target} yet. Retention waits for it."
        yield pending, text, EXPORT
    elif pending and pending[0] < late:
        yield pending, f"{_days(pending)}, not exported to {target} yet.", EXPORT


def _days(days: Sequence[date]) -> str:
    if len(days) == 1:
        return f"A day of the archive, {days[0]}"
    return f"{len(days)} days of the archive, {days[0]} the first"


@finding("conservation")
def conservation(look: Look) -> Findings:
    """Are jobs missing, by the latest run of the pipeline job conservation?"""
    hours = look.rows(enqueued_hours.MISSING, period=PERIOD, limit=ROWS_MAX)
    if not hours and not look.rows(enqueued_hours.HAS_ANY):
        return  # Nobody has counted.
    found = [hour for hour in hours if not _may_be_gone(hour, look)]
    found.sort(key=lambda hour: hour.missing, reverse=True)
    count = sum(hour.missing for hour in found)
    texts = [
        f"{hour.missing:,} of {hour.enqueued:,} of {hour.task} in {hour.queue}, "
        f"enqueued from {hour.hour:%Y-%m-%d %H:%M} UTC on"
        for hour in found
    ]
    yield verdict(
        found,
        f"{count:,} jobs neither wait nor are dead, archived or exported, though they "
        f"were there: {named(texts)}.",
        "Look who deletes rows: people who may purge, SQL, a day of the archive that "
        "was dropped by hand. When that was meant: manage.py pgqueue_pipeline run "
        "conservation -o accept=true",
        right="Every job that was counted is somewhere.",
        value=texts[:NAMES_MAX],
        limit=0,
    )


def _may_be_gone(hour: Any, look: Look) -> bool:
    """Whether these jobs leave no row, or retention has taken their dead letters."""
    keep = look.settings.retention.dead_letters
    if keep is not None and hour.age > keep:
        return True
    task = registry.tasks.get(hour.task)
    return task is not None and not task.resolve(hour.queue, look.settings).archive
