"""
Export: closed days of the archive, to a Delta table, by day and queue.

Each day is one commit, which is read again, compared and noted; then comes the next
one. So a run that ends early has done its days, and the next one goes on. A day that is
exported is left alone, unless the archive has more rows of it by now: then it is
replaced as a whole.

It starts no Spark: Arrow reads from PostgreSQL, and `deltalake` writes.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import date

import psycopg

from django_pgqueue.exceptions import PipelineStopped
from django_pgqueue.pipeline import exports
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.lake.days import (
    ArchiveDay,
    DayRefused,
    Unfinished,
    content_of,
    day_schema,
    replace_day,
)
from django_pgqueue.spark.lake.table import (
    DAY,
    TRIES,
    LakeTable,
    checked_days,
    checked_target,
)
from django_pgqueue.spark.run import Run

# Characters of an error that the row of a day keeps.
ERROR_CHARACTERS_MAX = 1_000

# How long transactions that write to the archive are waited for.
OPEN_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.05


@pipeline_job(name="export", chooses=("path",), takes_out=("archive",))
def export(
    run: Run, *, path: str = "", since: str = "", until: str = "", again: bool = False
) -> int:
    """
    Export the closed days of the archive to a Delta table, by day and queue.

    Options: path, a folder or a URI; since and until, the first and the last day;
    again, also what is exported already.
    """
    lake = LakeTable(run, checked_target(path))
    first, last = checked_days(since, until)
    problems: dict[date, str] = {}
    due = _due(lake, first, last, problems, again=again)
    _wait_until_closed(run, due, problems)
    rows = 0
    for day, table in due.items():
        run.check()
        try:
            done = _export(lake, day, table)
        except DayRefused as error:
            problems[day] = str(error)
            _note(lake, day, str(error))
            continue
        except Exception as error:
            with suppress(psycopg.Error, PipelineStopped):
                _note(lake, day, f"{type(error).__name__}: {error}")
            raise
        rows += done
        # Also of a run that fails for another day.
        run.rows_out += done
    if problems:
        raise Unfinished(problems, rows, f"exported to {lake.target}")
    return rows


def _note(lake: LakeTable, day: date, error: str) -> None:
    """Keep with a day why this run has not written it."""
    run = lake.run
    told = redact_text(error, run.patterns)[:ERROR_CHARACTERS_MAX]
    with run.transaction(is_brief=True) as cursor:
        exports.mark(cursor, lake.target, day, run=run.id, error=told)


def _export(lake: LakeTable, day: date, name: str) -> int:
    """Export one day, whose table is called *name*; return its rows."""
    run, target = lake.run, lake.target
    for tries_left in reversed(range(TRIES)):
        table = lake.made(day_schema(), [DAY, "queue"])
        # After the log was loaded, and before the day is read: a run that is lost, or
        # has read rows that are erased since, cannot commit.
        with run.transaction(is_brief=True) as cursor:
            exports.begin(cursor, target, day, run=run.id)
        rows = ArchiveDay(run, name)
        try:
            replace_day(lake, table, day, rows)
            break
        except lake.refused:
            if not tries_left:
                raise
    version = lake.existing().version()
    found = content_of(run, lake, day)
    if found != rows.content:
        raise DayRefused(f"The archive has {rows.content}, and {found} were written.")
    with run.transaction(is_brief=True) as cursor:
        exports.record(cursor, target, day, run=run.id, found=found, version=version)
    return found.rows


def _due(
    lake: LakeTable, first: date, last: date, problems: dict[date, str], *, again: bool
) -> dict[date, str]:
    """Return the days that are to be exported, with their tables."""
    run, target = lake.run, lake.target
    due, whole = {}, []
    lake.latest()
    there, broken = lake.rows_by_day(), lake.broken_days()
    with run.reading() as cursor:
        known = exports.known(cursor, target)
        for day, table in exports.ended_days(cursor).items():
            if not first <= day <= last:
                continue
            before, rows = known.get(day), there.get(day, 0)
            count = exports.count(cursor, table)
            if again or (before is None and not rows):
                due[day] = table
            elif before is None:
                problems[day] = (
                    f"There is something of it at {target}, and no run of ours has "
                    f"written it. -o again=true replaces it."
                )
            elif count < rows:
                problems[day] = (
                    f"the archive has {count:,} rows of it and {rows:,} were "
                    f"exported; they are left as they are. -o again=true replaces them."
                )
            elif count > rows or not before.is_exported or day in broken:
                due[day] = table
            else:
                whole.append(day)
    with run.transaction(is_brief=True) as cursor:
        exports.seen(cursor, target, whole)
    return due


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
