"""
Slices: which rows each task reads, fixed once, on the driver, for all of them.

A slice is a range of ids, in the archive of one day as well, and in the log of one
partition of a topic (spark/log/read.py plans those). Slices touch but never
overlap, and their common upper bound is where the table ended when the reading was
planned: what is written later is left out by every task alike, and a task that Spark
runs a second time reads the same range again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from typing import Any

from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.tables import Table

# Bytes of a table that make one more task, unless the option partitions says.
BYTES_PER_PARTITION = 67_108_864
DEFAULT_PARTITIONS_MAX = 64

# Tables or days that are asked about in one statement.
ENDS_MAX = 100

# Locks: none. The database's clock, by which rows are written.
NOW = "SELECT statement_timestamp() AS now"

# Locks: none. Each day of the archive that has a table, and the bytes of it.
DAYS = """
SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day,
       pg_table_size(c.oid) AS bytes
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'pgqueue_archived_job'::regclass
   AND c.relname ~ '^pgqueue_archived_job_[0-9]{8}$'
   AND NOT coalesce(i.inhdetachpending, false)
 ORDER BY day
"""

# Locks: ACCESS SHARE, for the two ends of an index.
ENDS = """
SELECT {place}::int AS place, min(id) AS first, max(id) AS last
  FROM {relation} WHERE {condition}
"""
# Locks: ACCESS SHARE, for a moment.
BYTES = "SELECT pg_table_size('{relation}'::regclass) AS bytes"


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of these ids, written from *since* until before *until*."""

    first_id: int
    last_id: int
    since: datetime | None = None
    until: datetime | None = None
    # Of the log.
    topic_id: int | None = None
    partition: int | None = None

    def condition(self, table: Table) -> str:
        """Return when a row belongs to it, except for its first id."""
        of_log = (
            []
            if self.topic_id is None
            else [f"topic_id = {self.topic_id}", f"partition = {self.partition}"]
        )
        return " AND ".join(
            [*of_log, f"id <= {self.last_id}", *_written(table, self.since, self.until)]
        )


def plan(
    session: Session, table: Table, *, partitions: int | None
) -> list[tuple[Slice, ...]]:
    """
    Divide what *table* has by now into one tuple of slices for each task.

    There are *partitions* tasks, at most; None: by the size of the table.
    """
    now = session.rows(NOW)[0]["now"]
    ranges = _ranges(session, table, now if table.written_at else None)
    if partitions is None:
        partitions = by_bytes(sum(size for _, size in ranges))
    return divided(ranges, partitions)


def by_bytes(size: int) -> int:
    """Return how many tasks read so many bytes, unless the option partitions says."""
    return min(1 + size // BYTES_PER_PARTITION, DEFAULT_PARTITIONS_MAX)


def divided(
    ranges: Sequence[tuple[Slice, int]], partitions: int
) -> list[tuple[Slice, ...]]:
    """Divide ranges, each with its size, among up to *partitions* tasks."""
    total = max(sum(size for _, size in ranges), 1)
    return distribute(
        [
            (part, size / parts)
            for whole, size in ranges
            for parts in [max(1, round(partitions * size / total))]
            for part in cut(whole, parts)
        ],
        partitions,
    )


def cut(whole: Slice, parts: int) -> list[Slice]:
    """Cut *whole* into up to *parts* ranges of about as many ids."""
    ids = whole.last_id - whole.first_id + 1
    parts = min(parts, ids)
    starts = [whole.first_id + ids * part // parts for part in range(parts)]
    ends = [start - 1 for start in starts[1:]] + [whole.last_id]
    return [
        replace(whole, first_id=first, last_id=last)
        for first, last in zip(starts, ends, strict=True)
    ]


def distribute(
    slices: Sequence[tuple[Slice, float]], partitions: int
) -> list[tuple[Slice, ...]]:
    """Give each of up to *partitions* tasks slices of about the same size together."""
    if not slices:
        return []
    loads = [0.0] * min(partitions, len(slices))
    tasks: list[list[Slice]] = [[] for _ in loads]
    # The largest first, each to whom has least.
    for part, size in sorted(slices, key=lambda item: -item[1]):
        least = loads.index(min(loads))
        loads[least] += max(size, 1.0)
        tasks[least].append(part)
    return [tuple(sorted(task, key=_order)) for task in tasks]


def ends(
    session: Session, asked: Sequence[tuple[str, str]]
) -> list[tuple[int, int] | None]:
    """Return the ends of the ids of relations, each with a condition; None: no row."""
    found: list[tuple[int, int] | None] = [None] * len(asked)
    for start in range(0, len(asked), ENDS_MAX):
        statement = " UNION ALL ".join(
            ENDS.format(place=place, relation=relation, condition=condition)
            for place, (relation, condition) in enumerate(
                asked[start : start + ENDS_MAX], start
            )
        )
        for row in session.rows(statement):
            if row["first"] is not None:
                found[row["place"]] = (row["first"], row["last"])
    return found


def _order(part: Slice) -> tuple[bool, float, int]:
    since = part.since
    return since is not None, since.timestamp() if since else 0.0, part.first_id


def _ranges(
    session: Session, table: Table, until: datetime | None
) -> list[tuple[Slice, int]]:
    """Return the ranges that have rows, with their sizes in bytes."""
    if table.by_day:
        assert until is not None
        spans = _days(session.rows(DAYS), until)
    else:
        size = session.rows(BYTES.format(relation=table.relation))[0]["bytes"]
        spans = [(None, until, size)]
    asked = [
        (table.relation, " AND ".join(_written(table, first, last)) or "true")
        for first, last, _ in spans
    ]
    return [
        (Slice(*found, first, last), size)
        for found, (first, last, size) in zip(ends(session, asked), spans, strict=True)
        if found is not None
    ]


def _days(
    days: list[dict[str, Any]], until: datetime
) -> list[tuple[datetime | None, datetime | None, int]]:
    """
    Cut the time up to *until* where a day of the archive begins.

    The first span has no beginning and the last one no end but *until*, so that a
    partition of another name is not passed over either.
    """
    cuts: list[tuple[datetime | None, int]] = [
        (midnight(row["day"]), row["bytes"])
        for row in days
        if midnight(row["day"]) < until
    ]
    cuts = [(None, 0), *cuts]
    ends = [start for start, _ in cuts[1:]] + [until]
    return [(start, end, size) for (start, size), end in zip(cuts, ends, strict=True)]


def midnight(day: date) -> datetime:
    """Return when *day* began, in UTC."""
    return datetime.combine(day, time(), UTC)


def _written(table: Table, since: datetime | None, until: datetime | None) -> list[str]:
    return [
        f"{table.written_at} {comparison} {moment(bound)}"
        for comparison, bound in ((">=", since), ("<", until))
        if bound is not None
    ]


def moment(value: datetime) -> str:
    """Return a moment as a literal of timestamptz, in UTC."""
    utc = value.astimezone(UTC).isoformat(sep=" ", timespec="microseconds")
    return f"'{utc}'::timestamptz"
