"""
Verify: whether the files of exported days have what their manifests say.

Each file is read to its end, and its rows are counted and summed up. A day of which the
archive still has all rows is exported again by the next run of `export`; of another
one the manifest keeps what is wrong, and the doctor tells it until the day is whole.
"""

from __future__ import annotations

from datetime import date

from django_pgqueue.pipeline import exports
from django_pgqueue.pipeline.exports import Manifest
from django_pgqueue.spark.export.day import Lake, Unfinished, format_of, opened
from django_pgqueue.spark.export.place import DayRefused, checked_days, checked_target
from django_pgqueue.spark.export.rows import of_files
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.run import Run

AGAIN = "The archive has it: the next run of export replaces it."


@pipeline_job(name="verify", chooses=("path",), takes_out=("archive",))
def verify(run: Run, *, path: str = "", since: str = "", until: str = "") -> int:
    """
    Read the files of exported days, and compare them with their manifests.

    Options: path, where they are; since and until, the first and the last day. It
    returns how many rows are as they should be.
    """
    target = checked_target(path)
    first, last = checked_days(since, until)
    problems: dict[date, str] = {}
    rows = 0
    with opened(run, target, format_of(run, target)) as lake:
        with run.reading() as cursor:
            tables = exports.ended_days(cursor)
        for day, manifest in lake.known().items():
            if not first <= day <= last or not manifest.is_exported:
                continue
            run.check()
            problem = _problem(lake, day, tables.get(day))
            if problem:
                problems[day] = _noted(lake, manifest, problem, tables.get(day))
                continue
            rows += manifest.rows or 0
            if manifest.error:
                with run.transaction(is_brief=True) as cursor:
                    exports.doubt(cursor, target, day, error=None)
    if problems:
        raise Unfinished(problems, rows, f"found whole in {target}")
    return rows


def _problem(lake: Lake, day: date, table: str | None) -> str:
    """Return what is wrong with an exported day, or ""."""
    run, target, place = lake.run, lake.target, lake.place
    # What readers see comes first: files that are replaced meanwhile are no finding.
    strays = place.strays(day)
    with run.reading() as cursor:
        details = exports.details(cursor, target, day)
    if details is None:
        return ""
    try:
        if place.look(day, details.files, details.found.rows) is None:
            raise DayRefused(exports.GONE)
        for _ in of_files(run, place, day, details.files, details).batches():
            pass
        listed = {file["path"] for file in details.files}
        others = [path for path in strays if path not in listed]
        if others:
            raise DayRefused(
                f"Readers see files that are not of it, {others[0]} for one: delete "
                f"them."
            )
    except (DayRefused, OSError, ValueError) as error:
        with run.reading() as cursor:
            now = exports.details(cursor, target, day)
        # Another run has replaced the day while it was read.
        return str(error) if now == details else ""
    if table is None:
        return ""
    with run.reading() as cursor:
        there = exports.content(cursor, table, like=details.found.checksum)
    if there != details.found:
        return f"The archive has {there}, and {details.found} were exported."
    return ""


def _noted(lake: Lake, manifest: Manifest, problem: str, table: str | None) -> str:
    """Keep a problem in the manifest; return what is told of it."""
    run, target, day = lake.run, lake.target, manifest.day
    there = -1
    if table is not None:
        with run.reading() as cursor:
            there = exports.count(cursor, table)
    with run.transaction(is_brief=True) as cursor:
        if there >= (manifest.rows or 0):
            exports.spoil(cursor, target, day, error=problem)
            return f"{problem} {AGAIN}"
        exports.doubt(cursor, target, day, error=problem)
    return problem
