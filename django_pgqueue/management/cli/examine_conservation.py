"""What the doctor asks of jobs that were seen once: are they all somewhere?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django_pgqueue.conf import Settings
from django_pgqueue.operators.findings import NAMES_MAX, Finding, finding, named
from django_pgqueue.pipeline import enqueued_hours
from django_pgqueue.pipeline.enqueued_hours import Missing
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.tasks import registry

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
        f"they were there: {named([_told(hour) for hour in found])}.",
        right="Every job that was counted is somewhere.",
        value=[_told(hour) for hour in found[:NAMES_MAX]],
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


def _told(hour: Missing) -> str:
    return (
        f"{hour.missing:,} of {hour.enqueued:,} of {hour.task} in {hour.queue}, "
        f"enqueued from {hour.hour:%Y-%m-%d %H:%M} UTC on"
    )
