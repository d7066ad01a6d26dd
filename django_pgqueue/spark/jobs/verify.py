"""
Verify: whether the lake has of exported days what the database says.

Each day is read from its files and summed up by PostgreSQL. A day of which the archive
still has all rows is exported again by the next run of `export`; of another one its row
keeps what is wrong, and the doctor tells it until the day is whole.
"""

from __future__ import annotations

from datetime import date

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.pipeline import exports
from django_pgqueue.pipeline.exports import Content, ExportedDay
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.lake.days import DayRefused, Unfinished, content_of
from django_pgqueue.spark.lake.table import LakeTable, checked_days, checked_target
from django_pgqueue.spark.run import Run

AGAIN = "The archive has it: the next run of export replaces it."


@pipeline_job(name="verify", chooses=("path",), takes_out=("archive",))
def verify(run: Run, *, path: str = "", since: str = "", until: str = "") -> int:
    """
    Read the files of exported days, and compare them with the database.

    Options: path, where they are; since and until, the first and the last day. It
    returns how many rows are as they should be.
    """
    target = checked_target(path)
    first, last = checked_days(since, until)
    lake = LakeTable(run, target)
    problems: dict[date, str] = {}
    rows = 0
    with run.reading() as cursor:
        known = exports.known(cursor, target)
        tables = exports.ended_days(cursor)
    if not known:
        raise SparkOptionError(
            f"No day was exported to {target}: run export, or name another path."
        )
    for day, exported in known.items():
        if not first <= day <= last or not exported.is_exported:
            continue
        run.check()
        problem = _problem(lake, exported, tables.get(day))
        if problem:
            problems[day] = _noted(lake, exported, problem, tables.get(day))
            continue
        rows += exported.rows or 0
        if exported.error:
            with run.transaction(is_brief=True) as cursor:
                exports.mark(cursor, target, day, error=None)
    if problems:
        raise Unfinished(problems, rows, f"found whole in {target}")
    return rows


def _problem(lake: LakeTable, exported: ExportedDay, table: str | None) -> str:
    """Return what is wrong with an exported day, or ""."""
    run, day = lake.run, exported.day
    lake.latest()
    expected = Content(exported.rows or 0, exported.checksum or "")
    problem = ""
    try:
        found = content_of(run, lake, day)
        if found != expected:
            problem = f"The table has {found}, and {expected} were exported."
    except DayRefused as error:
        problem = str(error)
    with run.reading() as cursor:
        if not problem and table is not None:
            found = exports.content(cursor, table)
            if found != expected:
                problem = f"The archive has {found}, and {expected} were exported."
        # Another run has replaced the day while it was read.
        is_same = exports.known(cursor, lake.target).get(day) == exported
    return problem if is_same else ""


def _noted(
    lake: LakeTable, exported: ExportedDay, problem: str, table: str | None
) -> str:
    """Keep a problem with its day; return what is told of it."""
    run, target, day = lake.run, lake.target, exported.day
    there = -1
    if table is not None:
        with run.reading() as cursor:
            there = exports.count(cursor, table)
    with run.transaction(is_brief=True) as cursor:
        if there >= (exported.rows or 0):
            exports.mark(cursor, target, day, error=problem, is_stale=True)
            return f"{problem} {AGAIN}"
        exports.mark(cursor, target, day, error=problem)
    return problem
