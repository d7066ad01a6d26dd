"""Table: the figures for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_pgqueue.management.bench.measure import Pairs
from django_pgqueue.management.bench.progress import shown

HEADER = ("measure", "", "median", "min", "max", "unit", "ratio")
LATENCY_HEADER = ("latency", "", "p50", "p95", "p99", "unit", "ratio")


def table(measured: Sequence[Pairs]) -> str:
    """Return a block of text; ratios are product to yardstick."""
    rates = [pairs for pairs in measured if not pairs.measure.is_latency]
    latencies = [pairs for pairs in measured if pairs.measure.is_latency]
    blocks = [
        _block(HEADER, rates, ("median", "min", "max")),
        _block(LATENCY_HEADER, latencies, ("p50", "p95", "p99")),
    ]
    notes = [f"{pairs.measure.name}: {pairs.measure.what}" for pairs in measured]
    notes.append(
        "ratio: product to yardstick (plain psycopg), the median of the pairs' ratios"
    )
    return "\n\n".join([*filter(None, blocks), "\n".join(notes)])


def _block(
    header: tuple[str, ...], measured: Sequence[Pairs], figures: tuple[str, ...]
) -> str:
    if not measured:
        return ""
    rows = [header]
    for pairs in measured:
        told = pairs.as_json()
        ratio = f"{pairs.ratio:.2f}"
        rows.append(_row(pairs.measure.name, "product", told, figures, ratio))
        rows.append(_row("", "yardstick", told, figures, ""))
    widths = [max(len(row[place]) for row in rows) for place in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _row(
    name: str, side: str, told: dict[str, Any], figures: tuple[str, ...], ratio: str
) -> tuple[str, ...]:
    summary = told[side]
    cells = [shown(summary[figure]) for figure in figures]
    return (name, side, *cells, summary["unit"], ratio)
