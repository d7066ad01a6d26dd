"""Plans: what a statement has read, and whether that grows with the table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# A sort, or a scan without an index, of more rows than this grows with the table.
# The least that a shape leaves among live jobs is a thousand and forty: to sort those
# is as cheap as an index, and a planner may do either.
SORTED_ROWS_MAX = 1_500
SCANNED_ROWS_MAX = 2_000

Plan = dict[str, Any]


# What runs the statement, and says what it has read.
ANALYZED = "ANALYZE, BUFFERS, FORMAT JSON"


def explain(cursor: Any, statement: str, params: Any, how: str = ANALYZED) -> Plan:
    """Explain *statement*, roll back what it did, and return its plan's root."""
    with cursor.connection.transaction(force_rollback=True):
        cursor.execute(f"EXPLAIN ({how}) {statement}", params)
        plan: Plan = cursor.fetchone()[0][0]["Plan"]
    return plan


def nodes(plan: Plan) -> Iterator[Plan]:
    """Yield every node of a plan, the root first."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def buffers(plan: Plan) -> int:
    """Return the pages that a statement has read, in memory or not."""
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def faults(
    plan: Plan, *, buffers_max: int, scanned_max: int = SCANNED_ROWS_MAX
) -> list[str]:
    """
    Return what of a plan would grow with the table.

    A sequential scan of an empty table or of a few rows is none: the planner may well
    prefer it, and the next plan is another one when the table has grown.
    """
    found = []
    if buffers(plan) > buffers_max:
        found.append(f"{buffers(plan):,} buffers, not {buffers_max:,}")
    for node in nodes(plan):
        kind, rows = node["Node Type"], _rows_read(node)
        if kind == "Seq Scan" and rows > scanned_max:
            found.append(f"a Seq Scan of {rows:,} rows of {node['Relation Name']}")
        if kind in ("Sort", "Incremental Sort") and rows > SORTED_ROWS_MAX:
            found.append(f"a Sort of {rows:,} rows")
    return found


def _rows_read(node: Plan) -> int:
    if "Sort" in node["Node Type"]:
        (child,) = [n for n in node["Plans"] if n["Parent Relationship"] == "Outer"]
        return int(child["Actual Rows"] * child["Actual Loops"])
    removed = node.get("Rows Removed by Filter", 0)
    return int((node["Actual Rows"] + removed) * node["Actual Loops"])
