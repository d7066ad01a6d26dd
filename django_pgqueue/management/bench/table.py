"""Table: the figures for people, within 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from django_pgqueue.management.bench.measure import Goal, Pairs, Result
from django_pgqueue.management.bench.progress import shown

COLUMNS = 80

RATE_HEADER = ("", "median", "min", "max", "unit", "ratio", "goal", "")
LATENCY_HEADER = ("", "p50", "p95", "p99", "unit", "ratio", "goal", "")

# The cells that stand at the left of their column: names, units and goals.
LEFT = (0, 4, 6, 7)

NOTE = (
    "ratio: of the medians of a pair of runs, side by side; the median of all pairs. "
    "Where the second line is called yardstick, that is plain psycopg."
)

Row = tuple[str, ...]


def table(results: Sequence[Result]) -> str:
    """Return a block of text."""
    latencies = [result for result in results if result.measure.is_latency]
    others = [result for result in results if not result.measure.is_latency]
    blocks = []
    for header, some in ((RATE_HEADER, others), (LATENCY_HEADER, latencies)):
        rows = [row for result in some for row in _rows(result)]
        if rows:
            blocks.append(_laid_out([header, *rows]))
    notes = [f"{result.measure.name}: {result.measure.what}" for result in results]
    return "\n\n".join(
        [*blocks, "\n".join([*notes, "", *textwrap.wrap(NOTE, COLUMNS)])]
    )


def _rows(result: Result) -> Iterator[Row]:
    goals = {goal.figure: goal for goal in result.measure.goals}
    for pairs in result.parts:
        yield from _two_rows(result, pairs, goals)
    figures = result.figures
    for name in result.also:
        goal = goals.get(name)
        unit = goal.unit if goal else ""
        values = (shown(figures[name]), "", "")
        yield (f"  {name}", *values, unit, "", *_judged(goal, figures))


def _two_rows(result: Result, pairs: Pairs, goals: dict[str, Goal]) -> Iterator[Row]:
    measure = result.measure
    names = ("p50", "p95", "p99") if measure.is_latency else ("median", "min", "max")
    ours, plain = pairs.product, pairs.yardstick
    label = " ".join(filter(None, (measure.name, pairs.part)))
    figures = {**ours, "ratio": pairs.ratio}
    is_counted = measure.counted is None or pairs.part in measure.counted
    first, *more = [
        _judged(goals[name], figures)
        for name in ("ratio", "median", "p50", "p99")
        if name in goals and is_counted
    ] or [("", "")]
    yield (label, *_cells(ours, names), f"{pairs.ratio:.2f}", *first)
    if not measure.other_side:
        return
    second = more[0] if more else ("", "")
    yield (f"  {measure.other_side}", *_cells(plain, names), "", *second)


def _cells(summary: dict[str, Any], names: Sequence[str]) -> Row:
    return (*(shown(summary[name]) for name in names), summary["unit"])


def _judged(goal: Goal | None, figures: dict[str, Any]) -> tuple[str, str]:
    """Return the goal and whether it is met, as two cells."""
    if goal is None:
        return "", ""
    sign = "<=" if goal.is_at_most else ">="
    name = "" if goal.figure == "ratio" else f"{goal.figure} "
    if len(name) > len("p99 "):
        name = ""  # Its line is called so.
    return f"{name}{sign} {goal.limit:,g}", "met" if goal.is_met(figures) else "no"


def _laid_out(rows: Sequence[Row]) -> str:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place in LEFT else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
