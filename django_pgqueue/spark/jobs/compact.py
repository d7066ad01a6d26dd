"""
Compact: many small files of a day and queue, rewritten into few.

Queries open each file, so that what writes often, or with many tasks, makes them slow.
A day is rewritten as it is exported: its new files are written and read again beside
the old ones, its manifest lists them, and then the old ones go.

A queue's files are many where fewer of the given size would do.
"""

from __future__ import annotations

from datetime import date

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.pipeline import exports, ingest
from django_pgqueue.pipeline.exports import Details, Files
from django_pgqueue.spark.export.day import (
    TAKEN,
    Lake,
    each_day,
    format_of,
    opened,
    replace_day,
)
from django_pgqueue.spark.export.parquet import many
from django_pgqueue.spark.export.place import (
    FILE_MB,
    DayRefused,
    checked_days,
    checked_target,
)
from django_pgqueue.spark.export.rows import of_files
from django_pgqueue.spark.export.sums import PREFIX
from django_pgqueue.spark.ingest.files import ingested
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.run import Run

MEGABYTE = 2**20
FILE_MB_MAX = 4_096


@pipeline_job(name="compact", chooses=("path",), takes_out=("archive", "log"))
def compact(
    run: Run,
    *,
    path: str = "",
    since: str = "",
    until: str = "",
    file_mb: int = FILE_MB,
) -> int:
    """
    Rewrite days of jobs, or of messages, that are in many small files into few.

    Options: path, where they are; since and until, the first and the last day; file_mb,
    megabytes (2**20 bytes) of a file, at most about.
    """
    target = checked_target(path)
    first, last = checked_days(since, until)
    if not 1 <= file_mb <= FILE_MB_MAX:
        raise SparkOptionError(
            f"The option file_mb is {file_mb:,}; it must be from 1 to {FILE_MB_MAX:,}."
        )
    if _is_ingested(run, target):
        return ingested(run, target).compact(first, last, file_mb * MEGABYTE)
    with opened(run, target, format_of(run, target)) as lake:
        lake.place.file_bytes = file_mb * MEGABYTE
        due = []
        for day, manifest in lake.known().items():
            if not first <= day <= last or not manifest.is_exported:
                continue
            with run.reading() as cursor:
                details = exports.details(cursor, target, day)
            if details is not None and many(details.files, lake.place.file_bytes):
                due.append(day)
        return each_day(lake, due, lambda day: _compact(lake, day), "rewritten in")


def _is_ingested(run: Run, target: str) -> bool:
    """Whether messages are there, and no exported days."""
    with run.reading() as cursor:
        return not exports.known(cursor, target) and target in (ingest.targets(cursor))


def _compact(lake: Lake, day: date) -> int:
    """Rewrite one day; return the rows that were."""
    run, target, place = lake.run, lake.target, lake.place
    with run.transaction(is_brief=True) as cursor:
        if not exports.take(cursor, target, day, run=run.id):
            raise DayRefused(TAKEN)
        details = exports.details(cursor, target, day)
    assert details is not None
    files = _rewritten(lake, details)
    if not files:
        return 0  # Another run has done it.
    kept = [file for file in details.files if file not in files]
    rows = of_files(run, place, day, files, details)
    replaced = replace_day(
        lake,
        day,
        rows,
        lambda: (details.found, details.content if kept else rows.sums.content),
        kept=kept,
    )
    run.note(f"{day}: {len(files)} files are {len(replaced.files)} now.")
    return rows.sums.rows


def _rewritten(lake: Lake, details: Details) -> Files:
    """Return the files that are to be replaced; all of a day, where one has to be."""
    some = many(details.files, lake.place.file_bytes)
    is_known = (details.content or "").startswith(PREFIX) and all(
        "rows" in file for file in details.files
    )
    # A manifest of a release before gets its checksum only of the whole day.
    return some if lake.place.replaces_files and is_known else some and details.files
