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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from itertools import chain
from typing import Any

import psycopg

from django_pgqueue.exceptions import PipelineStopped, SparkError, SparkOptionError
from django_pgqueue.extras import arrow, compute, extra
from django_pgqueue.pipeline import exports
from django_pgqueue.pipeline.exports import IDENTITY, Content, Departed, ExportedDay
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.spark import options
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.lake.table import (
    DAY,
    FILE_MB,
    TRIES,
    LakeTable,
    checked_days,
    checked_target,
)
from django_pgqueue.spark.reader import arrow_schema, read
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.slices import Slice
from django_pgqueue.spark.tables import ARCHIVE, Column

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


# Days -------------------------------------------------------------------------------
# What identifies the rows of a day is summed up by PostgreSQL, wherever they are: see
# pipeline/exports.py.

# Of two commits that name it and follow from one version, Delta refuses the second.
APPLICATION = "django_pgqueue.export"

# PostgreSQL's sum of a row, which is read with it.
ROW_SUM = Column("row_sum", "bigint", expression=exports.ROW_SUM)

# Locks: ACCESS SHARE on one day, for the two ends of its primary key.
ENDS = "SELECT min(id) AS first, max(id) AS last FROM {table}"


class DayRefused(SparkError):
    """A day cannot be written or read, and is left as it is; others may be."""


class Unfinished(SparkError):
    """Some days were refused; *problems* says why, by day, or by place."""

    def __init__(self, problems: Mapping[Any, str], rows: int, what: str) -> None:
        told = " ".join(f"{day}: {problems[day]}" for day in sorted(problems))
        super().__init__(f"Of others, {rows:,} rows were {what}; not of these. {told}")


class ArchiveDay:
    """
    The rows of a closed day of the archive, without secrets, at the run's pace.

    Its *table* is as exports.ended_days() returns it.
    """

    def __init__(self, run: Run, table: str) -> None:
        self._run = run
        self._table = table
        self.content = Content(0, exports.checksum_of(0))

    def batches(self) -> Iterator[Any]:
        """
        Yield them, as pyarrow.RecordBatch; then `content` is theirs.

        Raises:
            DayRefused: The primary has another number of rows than were read.
        """
        asked = options.parse({"table": ARCHIVE.name, **self._run.read_options})
        # One day is one table: no condition but ids.
        day = replace(ARCHIVE, relation=self._table, written_at=None)
        rows = total = 0
        with Session(self._run.read_dsn(), table=ARCHIVE.name) as session:
            (ends,) = session.rows(ENDS.format(table=self._table))
            if ends["first"] is not None:
                for batch in read(
                    session,
                    day,
                    (*ARCHIVE.columns, ROW_SUM),
                    [Slice(ends["first"], ends["last"])],
                    redaction=asked.redaction(self._run.redaction),
                    rows_per_second=asked.rows_per_second_max,
                ):
                    self._run.check()
                    total += _sum(batch.column(ROW_SUM.name))
                    rows += batch.num_rows
                    self._run.rows_in += batch.num_rows
                    yield batch.drop_columns([ROW_SUM.name])
        with self._run.reading() as cursor:
            there = exports.count(cursor, self._table)
        if there != rows:
            raise DayRefused(
                f"Rows differ: PostgreSQL has {there:,}, and {rows:,} were read from "
                f"it."
            )
        self.content = Content(rows, exports.checksum_of(total))


def replace_day(lake: LakeTable, table: Any, day: date, rows: ArchiveDay) -> None:
    """
    Let a day have just these *rows*, by one commit, which follows from *table*.

    Raises:
        LakeTable.refused: Another commit was quicker.
    """
    properties = lake.commit_properties({APPLICATION: lake.run.id})
    of_day = f"{DAY} = '{day}'"
    problems: list[Exception] = []
    batches = _telling(rows.batches(), problems)
    first = next(batches, None)
    if first is None:
        if day in lake.rows_by_day():
            table.delete(of_day, commit_properties=properties)
        return
    given = (_with_day(batch, day) for batch in chain([first], batches))
    try:
        extra("deltalake").write_deltalake(
            table,
            arrow.RecordBatchReader.from_batches(day_schema(), given),
            mode="overwrite",
            predicate=of_day,
            schema_mode="merge",
            target_file_size=FILE_MB * 2**20,
            commit_properties=properties,
        )
    except Exception:
        # Through Arrow, an error of ours comes as a text.
        if problems:
            raise problems[0] from None
        raise


def day_schema() -> Any:
    """Return the columns of a table of days."""
    return arrow_schema(ARCHIVE.columns).append(arrow.field(DAY, arrow.date32()))


def content_of(run: Run, lake: LakeTable, day: date) -> Content:
    """
    Return what the lake has of a day, as PostgreSQL sums it up.

    Raises:
        DayRefused: It cannot be read.
    """
    try:
        with run.reading() as cursor:
            return exports.content_of(
                cursor, as_csv(lake.batches(day, IDENTITY.split(", ")))
            )
    except (OSError, ValueError) as error:
        raise DayRefused(f"It cannot be read: {error}") from None


def departed_batches(run: Run, day: Departed, columns: Sequence[str]) -> Iterator[Any]:
    """
    Yield the rows of a day that the lake alone has.

    Raises:
        SparkError: It is not where it was exported to.
    """
    if not day.rows:
        return
    lake = LakeTable(run, day.target)
    lake.latest()
    problem = "the table has no row of it"
    if day.day in lake.rows_by_day():
        try:
            yield from lake.batches(day.day, columns)
            return
        except (OSError, ValueError) as error:
            problem = str(error)
    raise SparkError(
        f"{day.day}, which was exported to {day.target}, cannot be read there: "
        f"{problem}. Put it back, or leave it out by a shorter lookback or keep."
    )


def as_csv(batches: Iterable[Any]) -> Iterator[bytes]:
    """Yield the rows of batches as COPY takes them."""
    csv = extra("pyarrow.csv")
    for batch in batches:
        text = arrow.BufferOutputStream()
        # Times without their zone, which is that of run.reading(), UTC: to write it,
        # Arrow would look it up in files that not every host has.
        plain = [
            column.cast(arrow.timestamp("us"))
            if arrow.types.is_timestamp(column.type)
            else column
            for column in batch.columns
        ]
        rows = arrow.RecordBatch.from_arrays(plain, batch.schema.names)
        csv.write_csv(rows, text, csv.WriteOptions(include_header=False))
        yield text.getvalue().to_pybytes()


def _telling(batches: Iterator[Any], problems: list[Exception]) -> Iterator[Any]:
    """Yield *batches*; what goes wrong is noted in *problems* as well."""
    try:
        yield from batches
    except Exception as error:
        problems.append(error)
        raise


def _with_day(batch: Any, day: date) -> Any:
    days = arrow.repeat(arrow.scalar(day, arrow.date32()), batch.num_rows)
    return batch.append_column(DAY, days)


def _sum(numbers: Any) -> int:
    """Return the sum of signed numbers of 64 bits, which may have more."""
    wide = numbers.cast(arrow.decimal128(19))
    return int(compute.sum(wide).as_py() or 0)


# Compact ----------------------------------------------------------------------------
# Queries open each file, so that what writes often, or with many tasks, makes them
# slow. It is Delta's own OPTIMIZE, in one commit.

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
    return LakeTable(run, target).compact(first, last, file_mb * MEGABYTE)


# Verify -----------------------------------------------------------------------------
# Each day is read from its files and summed up by PostgreSQL. A day of which the
# archive still has all rows is exported again by the next run of `export`; of another
# one its row keeps what is wrong, and the doctor tells it until the day is whole.

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
