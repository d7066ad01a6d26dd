"""
Fan out: a job for each row of any DataFrame, spread over a window.

    fan_out(
        customers.select("customer_id"),
        task="shop.tasks.refresh",
        key="customer_id",
        over="24h",
        start="2026-11-22T00:00Z",
        name="refresh 2026-11-22",
    )

All rows become jobs or none does, and once under a name. What is wrong is found before
anything is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any
from uuid import uuid4

from django_pgqueue.bounds import TIME_MAX
from django_pgqueue.exceptions import SparkError, SparkOptionError, did_you_mean
from django_pgqueue.extras import functions as f
from django_pgqueue.spark.dsn import find_dsn
from django_pgqueue.spark.option_table import Word, duration, key_columns, moment
from django_pgqueue.spark.write import result
from django_pgqueue.spark.write.journal import ROLLED_BACK, WriteResult
from django_pgqueue.spark.write.options import parse
from django_pgqueue.spark.write.parts import Columns, arrow_schema, plan
from django_pgqueue.timetable.offset import (
    DIGITS,
    MICROSECOND,
    OVER_DAYS_MAX,
    SEPARATOR,
)

# Keys that an error names.
KEYS_SHOWN_MAX = 5

# Characters of a key that an error shows.
KEY_CHARACTERS_SHOWN_MAX = 80

# What no column of a DataFrame is called.
ROWS = "pgqueue.rows"

REFUSE, KEEP = "refuse", "keep"
REPEATED = (REFUSE, KEEP)


@dataclass(frozen=True, slots=True)
class FanOut:
    """What is to become of the rows, checked."""

    # Of format("pgqueue"), with the task and a name.
    options: Mapping[str, str]
    key: tuple[str, ...] = ()
    # None: all at the start.
    over: timedelta | None = None
    # None: at once; of a window, when it is written.
    start: datetime | None = None
    # What becomes of rows that have the same key.
    repeated: str = REFUSE

    @property
    def task(self) -> str:
        """The task's name, which the offsets depend on; "": rows say theirs."""
        return self.options.get("task", "")


def fan_out(
    frame: Any,
    *,
    task: str,
    name: str,
    key: str | None = None,
    over: str | None = None,
    start: datetime | str | None = None,
    repeated: str = REFUSE,
    **options: str,
) -> WriteResult:
    """
    Store a job for each row, all or none, once under *name*.

    Columns are arguments of the task, or place the job, as for format("pgqueue").

    Args:
        frame: A DataFrame; its session finds the database as format("pgqueue") does.
        task: The name of the task.
        name: Of this fan-out. When it was written already, nothing is written, and the
            first one's result is returned.
        key: The columns that make a row what it is, with commas between.
        over: The window: "24h"; at most 366 days. Each row is due at a moment of it
            that follows from task and key. None: all are due at the start.
        start: Of the window; a moment with its offset. None: now.
        repeated: "refuse", or "keep" for a job for each of the rows with one key.
        options: Further ones of format("pgqueue"): queue="mail".

    Returns:
        What the journal says; where there is no row nothing is written, and the name
        is free.

    Raises:
        SparkOptionError: An argument or a column cannot be, a key is NULL or in
            several rows, or the window is over.
        SparkError: A row was refused; or the database cannot be used.
    """
    said = make(
        task=task,
        name=name,
        key=key,
        over=over,
        start=start,
        repeated=repeated,
        **options,
    )
    dsn = find_dsn(frame.sparkSession, parse(said.options).dsn)
    check_frame(frame, said)
    found, now = result.look_up(dsn, name)
    return found or write_rows(frame, said, dsn, now)


def make(
    *,
    key: str | None = None,
    over: str | None = None,
    start: datetime | str | None = None,
    repeated: str = REFUSE,
    **given: str | None,
) -> FanOut:
    """
    Return what was asked for; the arguments are those of fan_out(), None: not given.

    Raises:
        SparkOptionError: One of them cannot be.
    """
    options = {option: text for option, text in given.items() if text is not None}
    parse(options)
    if over is not None and key is None:
        raise SparkOptionError(
            "The option over needs key: which column makes a row what it is, so that "
            "it has the same moment each time?"
        )
    if over is not None and "task" not in options:
        raise SparkOptionError(
            "The option over needs the option task: offsets depend on it."
        )
    if start is not None and "runAt" in options:
        raise SparkOptionError("Give one of the options start and runAt, not both.")
    return FanOut(
        options=options,
        key=() if key is None else key_columns("key", key),
        over=None if over is None else window(over),
        start=None if start is None else moment("start", str(start)),
        repeated=Word(REPEATED)("repeated", repeated),
    )


def check_frame(frame: Any, said: FanOut) -> Columns:
    """
    Return which column is what; nothing is read for it.

    Raises:
        SparkOptionError: The columns do not make jobs, or a key.
    """
    columns = plan(arrow_schema(frame.schema), parse(said.options))
    check_key(frame.schema, said.key)
    # Spark makes no difference between cases, and would replace it.
    has_moment = "run_at" in map(str.casefold, frame.columns)
    if has_moment and (said.over or said.start):
        raise SparkOptionError(
            "There is a column run_at, and the option over or start: drop one of them."
        )
    return columns


def write_rows(frame: Any, said: FanOut, dsn: str, now: datetime) -> WriteResult:
    """
    Write the rows, which check_frame() has seen, under a name that is free.

    The database's clock says that it is *now*.

    Raises:
        SparkOptionError: A key is NULL or in several rows, or the window is over.
    """
    if said.over is not None:
        _check_window(said.start or now, said.over, now)
    with _kept(frame, said) as rows:
        if rows is None:
            # A write that was none.
            return WriteResult(uuid4(), said.options["name"], ROLLED_BACK, now, now)
        return result.write_named(_placed(rows, said, now), said.options, dsn)


def _placed(frame: Any, said: FanOut, now: datetime) -> Any:
    """Return *frame* with a column run_at, unless all are due at once."""
    if said.over is None and said.start is None:
        return frame
    start = f.lit(said.start or now)
    if said.over is not None:
        offset = offset_column(said.task, said.key, said.over)
        start = f.timestamp_micros(f.unix_micros(start) + offset)
    return frame.withColumn("run_at", start)


@contextmanager
def _kept(frame: Any, said: FanOut) -> Iterator[Any]:
    """
    Lend the rows, whose keys are good; None: there is no row.

    They are read once, and kept by Spark until they are written: a source that changes
    meanwhile cannot bring in a second row of a key.
    """
    if not said.key:
        yield None if frame.isEmpty() else frame
        return
    kept = frame.persist()
    try:
        _check_keys(kept, said)
        yield None if kept.isEmpty() else kept
    finally:
        kept.unpersist()


def _check_keys(frame: Any, said: FanOut) -> None:
    """Raise SparkOptionError for keys that are NULL or, if refused, in several rows."""
    keys = [column(name) for name in said.key]
    is_null = reduce(or_, (key.isNull() for key in keys))
    counted = frame.groupBy(*keys).agg(f.count(f.lit(1)).alias(ROWS))
    is_bad = is_null if said.repeated == KEEP else is_null | (column(ROWS) > 1)
    found = counted.where(is_bad).limit(KEYS_SHOWN_MAX + 1).collect()
    if not found:
        return
    what = ", ".join(said.key)
    nulls = sum(row[-1] for row in found if None in row[:-1])
    if nulls:
        raise SparkOptionError(
            f"The key {what} is NULL in {nulls:,} rows or more, so nothing was "
            f"written: leave these rows out."
        )
    shown = ", ".join(
        f"{_shown(row[:-1])} ({row[-1]:,} rows)" for row in found[:KEYS_SHOWN_MAX]
    )
    more = ", …" if len(found) > KEYS_SHOWN_MAX else ""
    raise SparkOptionError(
        f"The key {what} is the same in several rows, so nothing was written: "
        f"{shown}{more}. Leave them out (SELECT DISTINCT), name more columns of the "
        f"key, or write a job for each with repeated=keep."
    )


def _shown(values: Sequence[object]) -> str:
    return "/".join(str(value)[:KEY_CHARACTERS_SHOWN_MAX] for value in values)


def _check_window(start: datetime, over: timedelta, now: datetime) -> None:
    end = start + over
    if end > TIME_MAX:
        raise SparkOptionError(
            f"The window begins at {start.isoformat()} and is {over} long: it must end "
            f"before the year 9000."
        )
    if end <= now:
        raise SparkError(
            f"The window was over at {end.isoformat(timespec='seconds')}, so all jobs "
            f"would be due at once: give a later start, or leave over out if that is "
            f"meant."
        )


# Spread -----------------------------------------------------------------------------
# The offset is that of timetable/offset.py, whatever the version of Spark and however
# the rows are divided.

# Types of which every value has one text, whatever file or table it comes from.
KEY_TYPES = ("string", "tinyint", "smallint", "int", "bigint", "date", "boolean")


def offset_column(task: str, key: Sequence[str], over: timedelta) -> Any:
    """Return the same as a Column of Spark: microseconds, a bigint."""
    texts = [column(name).cast("string") for name in key]
    digest = f.sha2(f.concat_ws(SEPARATOR, f.lit(task), *texts), 256)
    number = f.conv(f.substring(digest, 1, DIGITS), 16, 10).cast("bigint")
    return f.pmod(number, f.lit(over // MICROSECOND))


def column(name: str) -> Any:
    """Return the column that is called exactly *name*, dots and all."""
    escaped = name.replace("`", "``")
    return f.col(f"`{escaped}`")


def window(text: str) -> timedelta:
    """
    Return the window that the option *over* says.

    Raises:
        SparkOptionError: It is none, or empty, or longer than OVER_DAYS_MAX.
    """
    over = duration("over", text)
    if not timedelta() < over <= timedelta(days=OVER_DAYS_MAX):
        raise SparkOptionError(
            f"The option over is {text!r}; it must be more than nothing and at most "
            f"{OVER_DAYS_MAX} days. Without it, all jobs are due at the start."
        )
    return over


def check_key(schema: Any, key: Sequence[str]) -> None:
    """Raise SparkOptionError unless the columns *key* can be one."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name in key:
        if name not in types:
            raise SparkOptionError(
                f"The key {name!r} is no column.{did_you_mean(name, list(types))} The "
                f"columns are {', '.join(types)}."
            )
        if types[name] not in KEY_TYPES:
            raise SparkOptionError(
                f"The key {name!r} is of the type {types[name]}; it must be one of "
                f"{', '.join(KEY_TYPES)}: cast it to a string."
            )


# Enqueue ----------------------------------------------------------------------------
# What they become is checked first, and needs no Spark: see Run.enqueue().

# Options of a write that a declared task has, and the columns that say it for a row.
OF_TASK = {"queue": "queue", "priority": "priority", "maxAttempts": "max_attempts"}


def asked(
    run: Any, task: str | None, *, name: str | None = None, **given: Any
) -> FanOut:
    """
    Return what rows are to become; the arguments are those of Run.enqueue().

    Raises:
        SparkOptionError: One of them cannot be, or nobody has declared the task.
    """
    if name is None:
        name = f"run {run.id} {uuid4().hex[:8]}"
    made = make(task=task, name=name, **given)
    if run.known_task is not None and made.task:
        run.known_task(made.task, made.options.get("queue"), None)
    return made


def write(run: Any, frame: Any, said: FanOut) -> int:
    """Write the rows, unless the name was written before; return how many jobs."""
    columns = check_frame(frame, said)
    if run.known_task is not None and said.task:
        arguments = _arguments(columns, frame.schema)
        of_task = run.known_task(said.task, said.options.get("queue"), arguments)
        said = replace(said, options=_with_task(of_task, said.options, frame.columns))
    dsn = find_dsn(run.session, parse(said.options).dsn)
    name = said.options["name"]
    # The run's own row says that no other one of this job is alive.
    before, now = result.look_up(dsn, name, takes_over=True)
    if before is not None:
        run.note(result.told(name, before, _summary(before, said)))
        return 0
    run.check()
    written = write_rows(frame, said, dsn, now)
    run.rows_in += sum(
        filter(None, (written.written, written.skipped, written.refused))
    )
    run.note(f"{name!r}: {_summary(written, said)}.")
    return written.written or 0


def _with_task(
    of_task: Mapping[str, str], given: Mapping[str, str], columns: Sequence[str]
) -> dict[str, str]:
    """Return the options of a task's jobs, but for what options or columns say."""
    options = {
        name: text for name, text in of_task.items() if OF_TASK.get(name) not in columns
    }
    options.update(given)
    if {"tags"} <= of_task.keys() & given.keys():
        # A call adds its tags to those of the task.
        options["tags"] = f"{of_task['tags']},{given['tags']}"
    return options


def _arguments(columns: Columns, schema: Any) -> Sequence[str] | None:
    """Return the names of the arguments; None: only the rows know them."""
    if "args" in columns.found:
        return None
    if "kwargs" not in columns.found:
        return list(columns.fields)
    kind = schema[columns.found["kwargs"]].dataType
    return list(kind.names) if hasattr(kind, "names") else None


def _summary(written: WriteResult, said: FanOut) -> str:
    """Return the numbers of a write in words."""
    is_published = "topic" in said.options and "receiver" not in said.options
    parts = [f"{written.written or 0:,} {'messages' if is_published else 'jobs'}"]
    if written.skipped:
        is_wanted = "topic" not in said.options
        why = "whose dedup key is taken" if is_wanted else "which nobody wants"
        parts.append(f"{written.skipped:,} rows skipped, {why}")
    if written.refused:
        reasons = "; ".join(
            f"{reason}: {rows:,}" for reason, rows in written.reasons.items()
        )
        parts.append(f"{written.refused:,} rows refused ({reasons})")
    return ", ".join(parts)
