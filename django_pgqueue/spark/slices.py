"""
Slices: which rows each task reads, fixed once, on the driver, for all of them.

A slice is a range of ids, in the archive of one day as well, and in the log of one
partition of a topic (spark/log/read.py plans those). Slices touch but never
overlap, and their common upper bound is where the table ended when the reading was
planned: what is written later is left out by every task alike, and a task that Spark
runs a second time reads the same range again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from itertools import accumulate, pairwise
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


# Divide -----------------------------------------------------------------------------
# Ranges of the same width do not: ids have gaps, and one old job that stays makes most
# of them empty. PostgreSQL knows how the ids lie, by the histogram of each table and of
# each partition of one.

PAGE_BYTES = 8_192

# A bucket of a histogram is cut into so many: a hundredth of the rows is too coarse
# where many tasks share them.
STEPS = 16
EVEN_STEPS = 1_000

# Rows and bytes that a task fetches at a time; of large rows fewer, so that the JVM has
# room for them.
FETCH_ROWS_MAX = 10_000
FETCH_BYTES_MAX = 16_777_216

# Locks: none. The table itself, or each partition of it that has a file. pg_stats shows
# the columns that the role may read.
TABLES = """
SELECT c.oid::regclass::text AS name, c.reltuples::float8 AS rows,
       c.relpages::bigint AS pages, pg_relation_size(c.oid) AS bytes,
       pg_table_size(c.oid) AS all_bytes, s.histogram_bounds::text AS bounds
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname
                      AND s.attname = 'id' AND NOT s.inherited
 WHERE c.relkind = 'r'
   AND (c.oid = '{relation}'::regclass
        OR c.oid IN (SELECT relid FROM pg_partition_tree('{relation}'::regclass)))
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A table that has rows: its ends, how ids lie between, and how much it is."""

    first: int
    last: int
    bounds: Sequence[int]
    rows: float
    # Of them, those that came since the bounds were looked for.
    new_rows: float
    bytes: int


def divide(
    session: Session, relation: str, partitions: int | None
) -> tuple[list[str], int]:
    """
    Return what each task reads, as conditions in SQL, and how many rows at a time.

    Divide the rows of *relation*, which has a primary key that begins with id.

    It may have partitions. Up to *partitions* tasks read it; None: by its size.
    """
    parts = _parts(session, relation)
    size = sum(part.bytes for part in parts)
    if partitions is None:
        partitions = by_bytes(size)
    rows = max(1.0, sum(part.rows for part in parts))
    fetch_rows = int(FETCH_BYTES_MAX * rows / max(size, 1))
    fetch_rows = max(1, min(FETCH_ROWS_MAX, fetch_rows))
    return conditions(cuts(parts, partitions)), fetch_rows


def cuts(parts: Sequence[Part], partitions: int) -> list[int]:
    """Return up to *partitions* - 1 ids, between which lie about as many rows."""
    points = sorted(point for part in parts for point in _points(part))
    if not points:
        return []
    sums = list(accumulate(rows for _, rows in points))
    places = (
        bisect_left(sums, sums[-1] * n / partitions) for n in range(1, partitions)
    )
    found = {points[min(place, len(points) - 1)][0] for place in places}
    # The id of a cut is the first of the task that follows.
    first, last = points[0][0], max(part.last for part in parts)
    return sorted(cut for cut in found if first < cut <= last)


def conditions(found: Sequence[int]) -> list[str]:
    """Return a condition for each task: without ends, so that no row is left out."""
    if not found:
        return ["true"]
    between = (f"id >= {first} AND id < {end}" for first, end in pairwise(found))
    return [f"id < {found[0]}", *between, f"id >= {found[-1]}"]


def _points(part: Part) -> list[tuple[int, float]]:
    """Return ids of *part*, in order, each with the rows since the one before it."""
    bounds = [bound for bound in part.bounds if part.first <= bound <= part.last]
    if len(bounds) < 2:
        # There is no better guess than that ids lie evenly.
        buckets, steps = [(part.first, part.last + 1, part.rows)], EVEN_STEPS
    else:
        share = (part.rows - part.new_rows) / (len(bounds) - 1)
        buckets = [(start, end, share) for start, end in pairwise(bounds)]
        # Ids grow: what came since is above all bounds.
        buckets.append((bounds[-1], part.last + 1, part.new_rows))
        steps = STEPS
    return [(part.first, 0.0)] + [
        (start + (end - start) * step // parts, rows / parts)
        for start, end, rows in buckets
        for parts in [min(steps, end - start)]
        for step in range(1, parts + 1)
    ]


def _parts(session: Session, relation: str) -> list[Part]:
    found = session.rows(TABLES.format(relation=relation))
    tables = [table for table in found if table["bytes"]]
    asked = [(table["name"], "true") for table in tables]
    return [
        _part(table, *span)
        for table, span in zip(tables, ends(session, asked), strict=True)
        if span is not None
    ]


def _part(table: dict[str, Any], first: int, last: int) -> Part:
    known = max(0.0, table["rows"])
    pages = table["bytes"] / PAGE_BYTES
    # As the planner does: the rows that a page had, in the pages that there are now.
    now = known * pages / table["pages"] if known and table["pages"] else float(pages)
    text = (table["bounds"] or "").strip("{}")
    return Part(
        first=first,
        last=last,
        bounds=[int(bound) for bound in text.split(",") if bound],
        rows=max(now, 1.0),
        new_rows=max(0.0, now - known) if known else 0.0,
        bytes=table["all_bytes"],
    )
