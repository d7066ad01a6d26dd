"""By error: which failures are alike, one line for each group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet

from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Column, Output
from django_pgqueue.operators.error_groups import Group, groups
from django_pgqueue.operators.human import distance
from django_pgqueue.operators.paging import floor_of, in_order

# Rows that are grouped.
ROWS_MAX = 10_000

COLUMNS = (
    Column("count", right=True),
    Column("task", may_cut=True, keeps_end=True),
    Column("last error", may_cut=True, keeps_end=True),
    Column("place", may_cut=True),
    Column("reason", may_go=True),
    Column("first", may_go=True),
    Column("latest"),
    Column("trend", may_go=True),
    Column("sample", right=True),
)

BLOCKS = "▁▂▃▄▅▆▇█"


def add_by(parser: Any, what: str) -> None:
    """Declare --by."""
    parser.add_argument(
        "--by",
        choices=("error",),
        help=f"Group {what} by task, error and place, the largest group first.",
    )


def grouped(rows: QuerySet[Any], chosen: QuerySet[Any], out: Output, way: str) -> int:
    """
    Print a line for each group of the newest rows.

    Args:
        rows: The table, whatever is asked for.
        chosen: Those of it that are meant.
        out: Where to print.
        way: What can be done with a whole group.
    """
    with in_order():
        floor = floor_of(rows)
        found, read = groups(chosen.filter(id__gte=floor or 0), ROWS_MAX)
    is_all = floor is None and read < ROWS_MAX
    if out.as_json:
        told = [_as_json(group) for group in found]
        out.json({"groups": told, "read": read, "is_complete": is_all})
    elif found:
        out.table(COLUMNS, [_row(group) for group in found])
        out.line()
        if not is_all:
            out.line(f"Of the newest {read:,}; there are more.")
        out.line(way)
    else:
        out.line("Nothing here has failed.")
    return EXIT_DONE if found else EXIT_NOTHING


def _row(group: Group) -> list[object]:
    return [
        f"{group.count:,}",
        group.alike.task,
        group.alike.error,
        group.alike.place,
        group.alike.reason or "retrying",
        distance(group.first, group.clock),
        distance(group.latest, group.clock),
        _trend(group.trend),
        group.sample,
    ]


def _trend(counts: Sequence[int]) -> str:
    """Return small bars, the highest for the highest count; none where it is zero."""
    highest = max(counts)
    return "".join(
        BLOCKS[(count * len(BLOCKS) - 1) // highest] if count else " "
        for count in counts
    )


def _as_json(group: Group) -> dict[str, Any]:
    return {
        **group.alike._asdict(),
        "count": group.count,
        "first": group.first,
        "latest": group.latest,
        "sample": group.sample,
        "trend": group.trend,
    }
