"""
Day: how the files of a day are replaced, whatever the new ones are made of.

`export` makes them of the archive, `compact` and `erase` of the files that are there.
A run has a day to itself from begin() or take() on until it ends, or its lease does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from typing import Any

import psycopg

from django_pgqueue.exceptions import PipelineStopped, SparkError, SparkOptionError
from django_pgqueue.pipeline import exports
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.pipeline.exports import Content, Departed, Manifest
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.spark.export.delta import DeltaPlace
from django_pgqueue.spark.export.parquet import ParquetPlace
from django_pgqueue.spark.export.place import DayRefused, Place, Published, Written
from django_pgqueue.spark.export.rows import of_schema
from django_pgqueue.spark.reader import arrow_schema
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.tables import ARCHIVE

# Characters of an error that a manifest keeps.
ERROR_CHARACTERS_MAX = 1_000

PLACES: Mapping[str, Callable[[Any, str], Place]] = {
    "parquet": ParquetPlace,
    "delta": DeltaPlace,
}

TAKEN = "Another run is writing it; left to the next one."


@dataclass(frozen=True, slots=True)
class Lake:
    """A target, as a run writes to it."""

    run: Run
    target: str
    format: str
    place: Place

    def known(self) -> dict[date, Manifest]:
        """Return what is known of each day."""
        with self.run.reading() as cursor:
            return exports.known(cursor, self.target)

    def note(self, day: date, error: str) -> None:
        """Keep in the manifest why this run has not written *day*."""
        told = redact_text(error, self.run.patterns)[:ERROR_CHARACTERS_MAX]
        with self.run.transaction(is_brief=True) as cursor:
            exports.fail(cursor, self.target, day, run=self.run.id, error=told)


@contextmanager
def opened(run: Run, target: str, form: str) -> Any:
    """
    Lend a Lake in which nothing is left of runs that are over.

    Raises:
        SparkOptionError: *target* has days in another format.
    """
    lake = Lake(run, target, form, PLACES[form](run, target))
    other = {manifest.format for manifest in lake.known().values()} - {form}
    if other:
        raise SparkOptionError(
            f"{target} has days in the format {other.pop()}, not {form}: export to "
            f"another path."
        )
    with run.reading() as cursor:
        live = pipelines.live_runs(cursor)
    lake.place.clear(live)
    try:
        _tidy_up(lake)
        yield lake
    finally:
        # What is left is hidden, and the next run removes it anyway.
        with suppress(Exception):
            lake.place.leave()


def format_of(run: Run, target: str) -> str:
    """
    Return the format of the days at *target*.

    Raises:
        SparkOptionError: Nothing was exported there.
    """
    with run.reading() as cursor:
        known = exports.known(cursor, target)
    for manifest in known.values():
        return manifest.format
    raise SparkOptionError(
        f"No day was exported to {target}: run export, or name another path."
    )


def each_day(
    lake: Lake, days: Sequence[date], write: Callable[[date], int], what: str
) -> int:
    """
    Call write() for each of *days*; return the sum of what it returns.

    Raises:
        SparkError: It has refused some, when all others were done.
    """
    problems: dict[date, str] = {}
    rows = 0
    for day in days:
        lake.run.check()
        try:
            done = write(day)
            rows += done
            # Also of a run that fails for another day.
            lake.run.rows_out += done
        except DayRefused as error:
            problems[day] = str(error)
            lake.note(day, str(error))
        except Exception as error:
            with suppress(psycopg.Error, PipelineStopped):
                lake.note(day, f"{type(error).__name__}: {error}")
            raise
    if problems:
        raise Unfinished(problems, rows, f"{what} {lake.target}")
    return rows


class Unfinished(SparkError):
    """Some days were refused; *problems* says why, by day, or by place."""

    def __init__(self, problems: Mapping[Any, str], rows: int, what: str) -> None:
        told = " ".join(f"{day}: {told}" for day, told in sorted(problems.items()))
        super().__init__(f"Of others, {rows:,} rows were {what}; not of these. {told}")
        self.problems = problems
        self.rows = rows


def replace_day(
    lake: Lake,
    day: date,
    rows: Written,
    manifest: Callable[[], tuple[Content, str | None]],
    *,
    kept: exports.Files = (),
    with_it: Callable[[Any, Published], None] = lambda cursor, published: None,
) -> Published:
    """
    Write *rows*, put them where readers look, and let the manifest list them.

    The run has the day already.

    Args:
        rows: Its rows, or those of the files that are not *kept*.
        manifest: What the manifest is to say, asked when all is written.
        kept: Files of the day that stay as they are.
        with_it: What else is written in the manifest's transaction.

    Raises:
        DayRefused: What was written differs; the day is as it was.
    """
    run, place = lake.run, lake.place
    place.write(day, rows)
    with run.transaction(is_brief=True) as cursor:
        _must(exports.publish(cursor, lake.target, day, run=run.id))
    try:
        published = place.publish(day, [str(file["path"]) for file in kept])
        found, content = manifest()
        with run.transaction(is_brief=True) as cursor:
            _must(
                exports.record(
                    cursor,
                    lake.target,
                    day,
                    run=run.id,
                    found=found,
                    content=content,
                    files=[*kept, *published.files],
                    replaced=published.replaced,
                    version=published.version,
                )
            )
            with_it(cursor, published)
    except BaseException:
        # If even that fails, the next run does it: the manifest says "publishing".
        with suppress(Exception):
            _take_back(lake, day)
        raise
    _clean(lake, day, published.replaced)
    return published


def _take_back(lake: Lake, day: date) -> None:
    """Delete what was published of a day, unless its manifest lists it after all."""
    with lake.run.reading(is_stopped=True) as cursor:
        listed = exports.listed(cursor, lake.target, day)
    lake.place.take_back(day, listed)


def _clean(lake: Lake, day: date, replaced: Sequence[str]) -> None:
    """Delete what the manifest has replaced, and say so."""
    lake.place.clean(day, replaced)
    if replaced:
        with lake.run.transaction(is_brief=True) as cursor:
            exports.cleaned(cursor, lake.target, day, replaced)


def _tidy_up(lake: Lake) -> None:
    """Delete what runs have left that ended while they published."""
    run, target = lake.run, lake.target
    with run.reading() as cursor:
        replaced = exports.replaced(cursor, target)
        in_archive = exports.ended_days(cursor)
    for day, paths in replaced.items():
        _clean(lake, day, paths)
    for day, manifest in lake.known().items():
        if manifest.state != "publishing":
            continue
        # First the files, then the manifest: what a run publishes meanwhile, should
        # this one be paused here, is not among them. Who has published these does not
        # say so any more once the day is this run's.
        strays = lake.place.strays(day)
        with run.transaction(is_brief=True) as cursor:
            if not exports.take(cursor, target, day, run=run.id):
                continue
            listed = exports.listed(cursor, target, day)
            if day not in in_archive:
                exports.restore(cursor, target, day, run=run.id)
        lake.place.remove([path for path in strays if path not in listed])


def _must(is_ours: bool) -> None:
    if not is_ours:
        raise PipelineStopped("Another run has taken up the day.")


def batches_of(run: Run, day: Departed, columns: Sequence[str]) -> Iterator[Any]:
    """
    Yield the rows of such a day as pyarrow.RecordBatch with just these columns.

    Raises:
        SparkError: The day is not where it was exported to.
    """
    if not day.rows:
        return
    place = PLACES[day.format](run, day.target)
    files = place.look(day.day, day.files, day.rows)
    if files is None:
        raise SparkError(
            f"{day.day}, which was exported to {day.target}, cannot be read there: "
            f"files of it are gone. Put it back, or leave it out by a shorter lookback "
            f"or keep."
        )
    by_name = {column.name: column for column in ARCHIVE.columns}
    schema = arrow_schema(tuple(by_name[name] for name in columns))
    for batch in place.rows(day.day, files, columns):
        run.check()
        yield of_schema(batch, schema)
