"""
Export: closed days of the archive, to files by day and queue.

Each day is written, compared with what PostgreSQL has, published, and noted in its
manifest; then comes the next one. So a run that ends early has done its days, and the
next one goes on. A day that is exported is left alone, unless the archive has more rows
of it by now: then it is replaced as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any

import psycopg

from django_pgqueue.exceptions import PipelineStopped, SparkError, SparkOptionError
from django_pgqueue.extras import extra
from django_pgqueue.pipeline import exports
from django_pgqueue.pipeline.exports import Manifest
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.spark.export.delta import DeltaPlace
from django_pgqueue.spark.export.parquet import ParquetPlace
from django_pgqueue.spark.export.place import DayRefused, Place
from django_pgqueue.spark.export.target import checked_format, checked_target
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.run import Run

# How long transactions that write to the archive are waited for.
OPEN_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.05

# Characters of an error that a manifest keeps.
ERROR_CHARACTERS_MAX = 1_000

PLACES: Mapping[str, Callable[[Any, str], Place]] = {
    "parquet": ParquetPlace,
    "delta": DeltaPlace,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options say."""

    target: str
    format: str
    first: date
    last: date
    again: bool

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Asked:
        """
        Read the options.

        Raises:
            SparkOptionError: One is wrong, or there is no path.
        """
        return cls(
            checked_target(options["path"]),
            checked_format(options["format"]),
            _day("since", options["since"], date.min),
            _day("until", options["until"], date.max),
            options["again"],
        )


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
    asked = Asked.of(
        {"path": path, "format": format, "since": since, "until": until, "again": again}
    )
    place = PLACES[asked.format](run, asked.target)
    place.clear()
    try:
        return _export_due(run, run.read("archive"), asked, place)
    finally:
        # What is left is hidden, and the next run removes it anyway.
        with suppress(Exception):
            place.leave()


def _export_due(run: Run, frame: Any, asked: Asked, place: Place) -> int:
    problems: dict[date, str] = {}
    _tidy_up(run, asked, place)
    due = _due(run, asked, place, problems)
    _wait_until_closed(run, due, problems)
    rows = 0
    for day, table in due.items():
        run.check()
        try:
            rows += _export(run, frame, asked, place, day, table)
        except DayRefused as error:
            problems[day] = str(error)
            _note(run, asked, day, str(error))
        except Exception as error:
            with suppress(psycopg.Error, PipelineStopped):
                _note(run, asked, day, f"{type(error).__name__}: {error}")
            raise
        run.rows_in = rows
    if problems:
        told = " ".join(f"{day}: {told}" for day, told in sorted(problems.items()))
        raise SparkError(
            f"Of other days, {rows:,} rows were exported to {asked.target}; not of "
            f"these. {told}"
        )
    return rows


def _export(
    run: Any, frame: Any, asked: Asked, place: Place, day: date, table: str
) -> int:
    """Export one day; return its rows."""
    f = extra("pyspark.sql.functions")
    with run.transaction(is_brief=True) as cursor:
        before = exports.known(cursor, asked.target).get(day)
        exports.begin(cursor, asked.target, day, form=asked.format, run=run.id)
    is_ours = before is not None and before.was_published
    if not is_ours and not asked.again and place.has(day):
        raise DayRefused(
            f"There is something of it at {asked.target}, and no manifest of ours says "
            f"so. -o again=true replaces it."
        )
    with run.reading() as cursor:
        found = exports.content(cursor, table)
        size = exports.size(cursor, table)
    end = exports.end_of(day)
    start = end - exports.DAY
    place.write(
        day,
        frame.where((f.col("finished_at") >= start) & (f.col("finished_at") < end)),
        found,
        size,
    )
    with run.transaction(is_brief=True) as cursor:
        _must(exports.publish(cursor, asked.target, day, run=run.id))
    try:
        replaced = _publish(run, asked, place, day, found)
    except BaseException:
        # If even that fails, the next run does it: the manifest says "publishing".
        with suppress(Exception):
            _take_back(run, asked, place, day)
        raise
    _clean(run, asked, place, day, replaced)
    return found.rows


def _publish(
    run: Any, asked: Asked, place: Place, day: date, found: exports.Content
) -> Sequence[str]:
    """Put the day where readers look, and say so; return what it has replaced."""
    published = place.publish(day)
    with run.transaction(is_brief=True) as cursor:
        _must(
            exports.record(
                cursor,
                asked.target,
                day,
                run=run.id,
                found=found,
                content=published.content,
                files=published.files,
                replaced=published.replaced,
                version=published.version,
            )
        )
    return published.replaced


def _take_back(run: Any, asked: Asked, place: Place, day: date) -> None:
    """Delete what was published of a day, unless its manifest lists it after all."""
    with run.reading(is_stopped=True) as cursor:
        listed = exports.listed(cursor, asked.target, day)
    place.take_back(day, listed)


def _clean(
    run: Any, asked: Asked, place: Place, day: date, replaced: Sequence[str]
) -> None:
    """Delete what the manifest has replaced, and say so."""
    place.clean(day, replaced)
    if replaced:
        with run.transaction(is_brief=True) as cursor:
            exports.cleaned(cursor, asked.target, day, replaced)


def _tidy_up(run: Any, asked: Asked, place: Place) -> None:
    """Delete what runs have left that ended while they published."""
    with run.reading() as cursor:
        known = exports.known(cursor, asked.target)
        replaced = exports.replaced(cursor, asked.target)
    if any(manifest.format != asked.format for manifest in known.values()):
        return  # It is refused.
    for day, paths in replaced.items():
        _clean(run, asked, place, day, paths)
    for day, manifest in known.items():
        if manifest.state == "publishing":
            # First the files, then the manifest: what a run publishes meanwhile, should
            # this one be paused here, is not among them.
            strays = place.strays(day)
            with run.transaction(is_brief=True) as cursor:
                listed = exports.listed(cursor, asked.target, day)
            place.remove([path for path in strays if path not in listed])


def _due(
    run: Any, asked: Asked, place: Place, problems: dict[date, str]
) -> dict[date, str]:
    """Return the days that are to be exported, with their tables."""
    due = {}
    with run.reading() as cursor:
        known = exports.known(cursor, asked.target)
        _check_format(known, asked)
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
                or not _is_there(run, asked, place, before)
            ):
                due[day] = table
    return due


def _is_there(run: Any, asked: Asked, place: Place, manifest: Manifest) -> bool:
    """Look at the files of an exported day, and note that they are there, or not."""
    day = manifest.day
    with run.reading() as cursor:
        files, _ = exports.files_of(cursor, asked.target, day)
    found = place.look(day, files, manifest.rows or 0)
    with run.transaction(is_brief=True) as cursor:
        if found is not None:
            exports.seen(cursor, asked.target, day, run=manifest.run, files=found)
        else:
            exports.spoil(cursor, asked.target, day, error=exports.GONE)
    return found is not None


def _check_format(known: Mapping[date, Manifest], asked: Asked) -> None:
    other = {manifest.format for manifest in known.values()} - {asked.format}
    if other:
        raise SparkOptionError(
            f"{asked.target} has days in the format {other.pop()}, not {asked.format}: "
            f"export to another path."
        )


def _wait_until_closed(
    run: Any, due: dict[date, str], problems: dict[date, str]
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


def _note(run: Any, asked: Asked, day: date, error: str) -> None:
    told = redact_text(error, run.patterns)[:ERROR_CHARACTERS_MAX]
    with run.transaction(is_brief=True) as cursor:
        exports.fail(cursor, asked.target, day, run=run.id, error=told)


def _must(is_ours: bool) -> None:
    if not is_ours:
        raise PipelineStopped("Another run has taken up the day.")


def _day(name: str, text: str, otherwise: date) -> date:
    try:
        return date.fromisoformat(text) if text else otherwise
    except ValueError:
        raise SparkOptionError(
            f"The option {name} is {text!r}; it must be a day such as 2026-11-21."
        ) from None
