"""
Task hours: what the pipeline job `metrics` has counted, an hour a row.

Rows are replaced whole, so that a run can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_pgqueue.postgres.cursor import Cursor, one_row, value

# Rows of one statement.
BATCH_ROWS = 1_000

KEY = ("hour", "queue", "task")
COUNTS = (
    "started",
    "succeeded",
    "failed",
    "retried",
    "dead",
    "cancelled",
    "expired",
    "crashed",
)
TIMES = (
    "wait_p50",
    "wait_p95",
    "wait_p99",
    "oldest_wait",
    "run_p50",
    "run_p95",
    "run_p99",
    "worker_seconds",
)
COLUMNS = (*KEY, *COUNTS, *TIMES)

# Locks: row locks on what is replaced, until the caller's transaction ends.
# A dead letter that was redriven since is counted no more, though it did die: so dead
# never shrinks.
STORE = f"""
INSERT INTO pgqueue_task_hour AS h ({", ".join(COLUMNS)}, computed_at)
SELECT {", ".join(COLUMNS)}, clock_timestamp()
  FROM unnest(%(hour)s::timestamptz[], %(queue)s::text[], %(task)s::text[],
              {", ".join(f"%({name})s::bigint[]" for name in COUNTS)},
              {", ".join(f"%({name})s::float8[]" for name in TIMES)})
       AS counted({", ".join(COLUMNS)})
ON CONFLICT (hour, queue, task) DO UPDATE
   SET {
    ", ".join(
        f"{name} = greatest(h.dead, EXCLUDED.dead)"
        if name == "dead"
        else f"{name} = EXCLUDED.{name}"
        for name in (*COUNTS, *TIMES)
    )
}, computed_at = EXCLUDED.computed_at
"""

# Locks: none. What was counted of each hour: of the archive, and of dead letters.
COUNTED = """
SELECT hour, sum(succeeded + cancelled + expired)::bigint, sum(dead)::bigint
  FROM pgqueue_task_hour WHERE hour >= %(since)s GROUP BY hour
"""
LAST = "SELECT max(hour) FROM pgqueue_task_hour"

# Locks: row locks on the deleted rows.
FORGET_HOURS = """
DELETE FROM pgqueue_task_hour
 WHERE hour < statement_timestamp() - %(keep)s::interval
"""


class Counted(NamedTuple):
    """How many jobs of an hour were counted."""

    archived: int
    dead: int


def store(cursor: Cursor, rows: Iterable[Sequence[Any]]) -> int:
    """Write *rows*, each with the values of COLUMNS; return how many."""
    ordered = sorted(rows, key=lambda row: tuple(row[: len(KEY)]))
    store_rows(cursor, STORE, COLUMNS, ordered)
    return len(ordered)


def store_rows(
    cursor: Cursor, statement: str, names: Iterable[str], rows: Sequence[Sequence[Any]]
) -> int:
    """
    Run a statement that takes an array for each column; return how many rows it wrote.

    Each row has the values of the columns *names*.
    """
    columns, written = tuple(names), 0
    for start in range(0, len(rows), BATCH_ROWS):
        arrays = map(list, zip(*rows[start : start + BATCH_ROWS], strict=True))
        cursor.execute(statement, dict(zip(columns, arrays, strict=True)))
        written += cursor.rowcount
    return written


def counted(cursor: Cursor, since: datetime) -> dict[datetime, Counted]:
    """Return what was counted of each hour from *since* on."""
    cursor.execute(COUNTED, {"since": since})
    return {hour: Counted(archived, dead) for hour, archived, dead in cursor.fetchall()}


def last(cursor: Cursor) -> datetime | None:
    """Return the latest hour that was counted, or None."""
    moment: datetime | None = value(cursor, LAST)
    return moment


def forget(cursor: Cursor, keep: timedelta) -> int:
    """Delete the hours older than *keep*; return how many rows."""
    cursor.execute(FORGET_HOURS, {"keep": keep})
    return int(cursor.rowcount)


# Rows that one look reads, the latest: 138 tasks of 30 days, in a tenth of a second.
ROWS_MAX = 100_000

# Locks: none. One walk along the unique index, latest hour first, as far as ROWS_MAX;
# of it both the sums of each span and those of each task.
SUMS = """
SELECT span, is_asked, queue, task, count(*),
       extract(epoch FROM min(hour))::bigint,
       sum(started)::bigint, sum(succeeded)::bigint, sum(failed)::bigint,
       sum(crashed)::bigint, sum(dead)::bigint, sum(cancelled)::bigint,
       sum(expired)::bigint,
       sum(wait_p50 * started) / nullif(sum(started)
           FILTER (WHERE wait_p50 IS NOT NULL), 0)::float8,
       max(wait_p95),
       sum(run_p50 * started) / nullif(sum(started)
           FILTER (WHERE run_p50 IS NOT NULL), 0)::float8,
       max(run_p95),
       sum(worker_seconds)::float8
  FROM (SELECT h.*,
               floor(extract(epoch FROM h.hour) / %(step)s)::bigint * %(step)s AS span,
               (%(queue)s::text IN ('', h.queue)
                AND %(task)s::text IN ('', h.task)) AS is_asked
          FROM pgqueue_task_hour h
         WHERE h.hour >= %(since)s
         ORDER BY h.hour DESC LIMIT %(limit)s) AS looked_at
 GROUP BY GROUPING SETS ((span, is_asked), (queue, task))
"""

# Locks: none. The clock, and the first and the last hour that was counted.
EXTENT = """
SELECT extract(epoch FROM clock_timestamp())::bigint,
       extract(epoch FROM (SELECT min(hour) FROM pgqueue_task_hour))::bigint,
       extract(epoch FROM (SELECT max(hour) FROM pgqueue_task_hour))::bigint
"""


@dataclass(frozen=True, slots=True)
class Sums:
    """What some rows amount to; times in seconds, None where nothing was measured."""

    started: int = 0
    succeeded: int = 0
    failed: int = 0
    crashed: int = 0
    dead: int = 0
    cancelled: int = 0
    expired: int = 0
    wait_p50: float | None = None
    wait_p95: float | None = None
    run_p50: float | None = None
    run_p95: float | None = None
    worker_seconds: float = 0.0

    @property
    def ended(self) -> int:
        """How many jobs ended, in whatever way."""
        return self.succeeded + self.dead + self.cancelled + self.expired

    @property
    def tried_again(self) -> int:
        """How many deliveries failed or crashed that were not the last of their job."""
        return max(self.failed + self.crashed - self.dead, 0)


@dataclass(frozen=True, slots=True)
class Summed:
    """
    What was asked for.

    Attributes:
        spans: By seconds since 1970; those without rows are left out.
        tasks: By queue and task, whatever was asked for.
        since: From when on all rows were read, where it was not from the beginning.
    """

    spans: dict[int, Sums]
    tasks: dict[tuple[str, str], Sums]
    since: int | None


@dataclass(frozen=True, slots=True)
class Extent:
    """The database's clock and what was counted, in seconds since 1970."""

    now: int
    first: int | None
    last: int | None


def sums(
    cursor: Cursor,
    *,
    since: datetime,
    step_seconds: int,
    queue: str = "",
    task: str = "",
    limit: int = ROWS_MAX,
) -> Summed:
    """
    Return what the hours from *since* on amount to.

    Args:
        cursor: An open cursor.
        since: The first hour.
        step_seconds: Of a span; whole hours.
        queue: The spans of this queue alone; "": of all.
        task: The spans of this task alone; "": of all.
        limit: Rows that are read, the latest.
    """
    cursor.execute(
        SUMS,
        {
            "since": since,
            "step": step_seconds,
            "queue": queue,
            "task": task,
            "limit": limit,
        },
    )
    spans: dict[int, Sums] = {}
    tasks: dict[tuple[str, str], Sums] = {}
    read, reached = 0, 0
    for span, is_asked, its_queue, its_task, rows, first, *values in cursor.fetchall():
        if span is None:
            tasks[its_queue, its_task] = Sums(*values)
            continue
        read += rows
        reached = min(reached or first, first)
        if is_asked:
            spans[span] = Sums(*values)
    if read < limit:
        return Summed(spans, tasks, None)
    # The hour in which the limit was met is not whole, and neither is its span.
    whole = -(-(reached + 1) // step_seconds) * step_seconds
    return Summed(
        {span: summed for span, summed in spans.items() if span >= whole}, tasks, whole
    )


def together(parts: Sequence[Sums]) -> Sums:
    """Return what *parts* amount to; of percentiles, the bound and the mean."""
    counts = {
        field.name: sum(getattr(part, field.name) for part in parts)
        for field in fields(Sums)
        if "_p" not in field.name
    }
    return Sums(
        **counts,
        wait_p50=_mean(parts, "wait_p50"),
        wait_p95=_highest(parts, "wait_p95"),
        run_p50=_mean(parts, "run_p50"),
        run_p95=_highest(parts, "run_p95"),
    )


def _highest(parts: Sequence[Sums], name: str) -> float | None:
    known = [getattr(part, name) for part in parts if getattr(part, name) is not None]
    return max(known, default=None)


def _mean(parts: Sequence[Sums], name: str) -> float | None:
    known = [part for part in parts if getattr(part, name) is not None and part.started]
    if not known:
        return None
    weights = sum(part.started for part in known)
    return float(sum(getattr(part, name) * part.started for part in known) / weights)


def extent(cursor: Cursor) -> Extent:
    """Return what was counted, and the clock."""
    cursor.execute(EXTENT)
    return Extent(*one_row(cursor))
