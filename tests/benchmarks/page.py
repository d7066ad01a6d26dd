"""
The page of the benchmarks: its tables are made from what was measured.

    python -m tests.benchmarks.page

puts into docs/explanation/benchmarks.md, between marks, what measured/own.json (of
`python -m tests.benchmarks all --json`), measured/peers.json and measured/spark.json
have.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks import goals, table
from tests.benchmarks.environments import REPOSITORY
from tests.benchmarks.results import Results
from tests.benchmarks.spark import table as spark_table

PAGE = REPOSITORY / "docs" / "explanation" / "benchmarks.md"
MEASURED = Path(__file__).parent / "measured"
OWN, PEERS = MEASURED / "own.json", MEASURED / "peers.json"
SPARK = MEASURED / "spark.json"

# <!-- made: NAME --> … <!-- end -->, on lines of their own.
BLOCK = re.compile(
    r"^<!-- made: ([a-z-]+) -->$.*?^<!-- end -->$", re.MULTILINE | re.DOTALL
)

VERDICTS = {True: "met", False: "**missed**", None: ""}


def made() -> dict[str, Callable[[], str]]:
    """Return what stands in each block."""
    results = Results.read(PEERS)
    spark = json.loads(SPARK.read_text(encoding="utf-8"))
    return {
        "own": lambda: own(json.loads(OWN.read_text(encoding="utf-8"))),
        "setting": lambda: table.setting(results),
        "peers": lambda: table.figures(results),
        "goals": lambda: goals.table_of(results),
        "configurations": lambda: table.configurations(results),
        "guarantees": lambda: table.guarantees(results),
        "spark-setting": lambda: spark_table.setting(spark),
        "spark-figures": lambda: spark_table.figures(spark),
        "spark-goals": lambda: spark_table.goals(spark),
        "spark-growth": lambda: spark_table.growth(spark),
        "spark-cold": lambda: spark_table.cold(spark),
        "spark-ingest": lambda: spark_table.ingest(spark),
    }


def rendered(page: str) -> str:
    """
    Return the page with every block filled.

    Raises:
        KeyError: A block has a name that nothing is made for.
    """
    blocks = made()

    def filled(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- made: {name} -->\n\n{blocks[name]()}\n\n<!-- end -->"

    return BLOCK.sub(filled, page)


def own(measures: dict[str, Any]) -> str:
    """Return the figures of this queue beside their goals."""
    header = ("", "product", "compared with", "ratio", "goal", "")
    rows = []
    for name, told in measures.items():
        rows.append(
            (
                f"`{name}`",
                _side(told["product"]),
                f"{_side(told['yardstick'])} ({told['baseline']})",
                f"{told['ratio']:.2f}",
                told["goal"] or "",
                VERDICTS[told["met"]],
            )
        )
    return table.table(header, rows)


def _side(told: dict[str, Any]) -> str:
    unit = told["unit"]
    if "p99" in told:
        cuts = ", ".join(table.shown(told[f"p{n}"]) for n in (50, 95, 99))
        return f"p50, p95, p99: {cuts} {unit}"
    spread = f"{table.shown(told['min'])} to {table.shown(told['max'])}"
    return f"{table.shown(told['median'])} {unit} ({spread})"


def main() -> int:
    """Fill the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(rendered(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
