"""
Divide: the ids that each task reads, so that each reads about as many rows.

Ranges of the same width do not: ids have gaps, and one old job that stays makes most of
them empty. PostgreSQL knows how the ids lie, by the histogram of each table and of each
partition of one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.slices import by_bytes, ends

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


@dataclass(frozen=True, slots=True)
class Division:
    """What each task reads, as conditions in SQL, and how many rows at a time."""

    conditions: tuple[str, ...]
    fetch_rows: int


def divide(session: Session, relation: str, partitions: int | None) -> Division:
    """
    Divide the rows of *relation*, which has a primary key that begins with id.

    It may have partitions. Up to *partitions* tasks read it; None: by its size.
    """
    parts = _parts(session, relation)
    size = sum(part.bytes for part in parts)
    if partitions is None:
        partitions = by_bytes(size)
    rows = max(1.0, sum(part.rows for part in parts))
    fetch_rows = int(FETCH_BYTES_MAX * rows / max(size, 1))
    return Division(
        conditions(cuts(parts, partitions)),
        max(1, min(FETCH_ROWS_MAX, fetch_rows)),
    )


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


def conditions(found: Sequence[int]) -> tuple[str, ...]:
    """Return a condition for each task: without ends, so that no row is left out."""
    if not found:
        return ("true",)
    return (
        f"id < {found[0]}",
        *(f"id >= {first} AND id < {end}" for first, end in pairwise(found)),
        f"id >= {found[-1]}",
    )


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
