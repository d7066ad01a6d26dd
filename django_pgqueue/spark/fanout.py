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
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any
from uuid import uuid4

from django_pgqueue.bounds import TIME_MAX
from django_pgqueue.exceptions import SparkError, SparkOptionError
from django_pgqueue.extras import extra
from django_pgqueue.spark.dsn import find_dsn
from django_pgqueue.spark.option_table import Word, moment
from django_pgqueue.spark.spread import (
    check_key,
    column,
    key_columns,
    offset_column,
    window,
)
from django_pgqueue.spark.write import once
from django_pgqueue.spark.write.columns import Columns, arrow_schema, plan
from django_pgqueue.spark.write.journal import ROLLED_BACK, WriteResult
from django_pgqueue.spark.write.options import parse

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
    result, now = once.look_up(dsn, name)
    return result or write(frame, said, dsn, now)


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
        key=() if key is None else key_columns(key),
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


def write(frame: Any, said: FanOut, dsn: str, now: datetime) -> WriteResult:
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
            return _nothing(said.options["name"], now)
        return once.write_named(_placed(rows, said, now), said.options, dsn)


def _placed(frame: Any, said: FanOut, now: datetime) -> Any:
    """Return *frame* with a column run_at, unless all are due at once."""
    f = extra("pyspark.sql.functions")
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
    f = extra("pyspark.sql.functions")
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


def _nothing(name: str, now: datetime) -> WriteResult:
    """Return the result of a write that was none."""
    return WriteResult(
        id=uuid4(),
        name=name,
        state=ROLLED_BACK,
        started_at=now,
        ended_at=now,
        written=0,
        skipped=0,
        refused=0,
        reasons={},
        queues=(),
    )
