"""
Export: closed days of the archive, to files by day and queue.

Each day is written, read again, compared, published, and noted in its manifest; then
comes the next one. So a run that ends early has done its days, and the next one goes
on. A day that is exported is left alone, unless the archive has more rows of it by now:
then it is replaced as a whole.

It starts no Spark: Arrow reads from PostgreSQL and writes the files.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import date

from django_pgqueue.pipeline import exports
from django_pgqueue.pipeline.exports import Manifest
from django_pgqueue.spark.export.day import (
    TAKEN,
    Lake,
    Unfinished,
    each_day,
    opened,
    replace_day,
)
from django_pgqueue.spark.export.place import (
    DayRefused,
    checked_days,
    checked_format,
    checked_target,
)
from django_pgqueue.spark.export.rows import ArchiveDay
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.run import Run

# How long transactions that write to the archive are waited for.
OPEN_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Asked:
    """Which days, and whether also those that are exported already."""

    first: date
    last: date
    again: bool


@pipeline_job(name="export", chooses=("path",), takes_out=("archive",))
def export(
    run: Run,
    *,
    path: str = "",
    format: str = "parquet",  # noqa: A002  # An option is called as people say it.
    since: str = "",
    until: str = "",
    again: bool = False,
) -> int:
    """
    Export the closed days of the archive to Parquet or Delta, by day and queue.

    Options: path, a folder or a URI; format, parquet or delta; since and until, the
    first and the last day; again, also what is exported already.
    """
    target, form = checked_target(path), checked_format(format)
    asked = Asked(*checked_days(since, until), again)
    with opened(run, target, form) as lake:
        problems: dict[date, str] = {}
        due = _due(lake, asked, problems)
        _wait_until_closed(run, due, problems)
        rows = 0
        try:
            rows = each_day(
                lake,
                list(due),
                lambda day: _export(lake, asked, day, due[day]),
                "exported to",
            )
        except Unfinished as error:
            problems |= error.problems
            rows = error.rows
        if problems:
            raise Unfinished(problems, rows, f"exported to {target}")
        return rows


def _export(lake: Lake, asked: Asked, day: date, table: str) -> int:
    """Export one day; return its rows."""
    run, target = lake.run, lake.target
    with run.transaction(is_brief=True) as cursor:
        before = exports.known(cursor, target).get(day)
        if not exports.begin(cursor, target, day, form=lake.format, run=run.id):
            raise DayRefused(TAKEN)
    is_ours = before is not None and before.was_published
    if not is_ours and not asked.again and lake.place.has(day):
        raise DayRefused(
            f"There is something of it at {target}, and no manifest of ours says so. "
            f"-o again=true replaces it."
        )
    rows = ArchiveDay(run, table)
    replace_day(lake, day, rows, lambda: (rows.content, rows.sums.content))
    return rows.sums.rows


def _due(lake: Lake, asked: Asked, problems: dict[date, str]) -> dict[date, str]:
    """Return the days that are to be exported, with their tables."""
    due = {}
    known = lake.known()
    with lake.run.reading() as cursor:
        for day, table in exports.ended_days(cursor).items():
            if not asked.first <= day <= asked.last:
                continue
            before = known.get(day)
            if before is None or before.rows is None or asked.again:
                due[day] = table
                continue
            count = exports.count(cursor, table)
            if count < before.rows:
                problems[day] = (
                    f"the archive has {count:,} rows of it and {before.rows:,} were "
                    f"exported; they are left as they are. -o again=true replaces them."
                )
            elif (
                count > before.rows
                or not before.is_exported
                or not _is_there(lake, before)
            ):
                due[day] = table
    return due


def _is_there(lake: Lake, manifest: Manifest) -> bool:
    """Look at the files of an exported day, and note that they are there, or not."""
    day, target = manifest.day, lake.target
    with lake.run.reading() as cursor:
        files, _ = exports.files_of(cursor, target, day)
    found = lake.place.look(day, files, manifest.rows or 0)
    with lake.run.transaction(is_brief=True) as cursor:
        if found is not None:
            exports.seen(cursor, target, day, run=manifest.run, files=found)
        else:
            exports.spoil(cursor, target, day, error=exports.GONE)
    return found is not None


def _wait_until_closed(
    run: Run, due: dict[date, str], problems: dict[date, str]
) -> None:
    """Wait for who may still write rows of the days; take those out that stay open."""
    if not due:
        return
    until = time.monotonic() + OPEN_SECONDS_MAX
    with run.reading() as cursor:
        waited_for = exports.writers(cursor)
        while True:
            last = max(due)
            waited_for = {
                name: writer
                for name, writer in waited_for.items()
                if not writer.is_over(last)
            }
            if not waited_for:
                return
            if time.monotonic() >= until:
                break
            run.check()
            time.sleep(LOOK_SECONDS)
            now = exports.writers(cursor)
            waited_for = {name: w for name, w in waited_for.items() if name in now}
    for day in list(due):
        open_for = [w for w in waited_for.values() if not w.is_over(day)]
        if open_for:
            del due[day]
            problems[day] = f"it is not closed: {_named(open_for)}."


def _named(writers: list[exports.Writer]) -> str:
    pids = sorted(writer.pid for writer in writers if writer.pid is not None)
    told = [f"process {pid} of the server" for pid in pids]
    if len(pids) < len(writers):
        told.append("a prepared transaction")
    return f"{', '.join(told)} may still write to it"
