"""Table: what was measured, for the page of the benchmarks."""

from __future__ import annotations

from statistics import median
from typing import Any

from tests.benchmarks import table

NAMES = {
    "read": "`read()`",
    "unmasked": "`read(redact=())`",
    "pgqueue": '`format("pgqueue")`',
    "staged": '`format("pgqueue")`',
    "jdbc": "Spark's JDBC",
    "copy": "one COPY, as psql",
}

# What is compared with what, and the goal.
GOALS = (
    ("read_wide", "unmasked", "jdbc", 1.2),
    ("read_wide", "read", "jdbc", 1.0),
    ("read_narrow", "read", "jdbc", 1.0),
    ("count", "read", "jdbc", 0.67),
    ("group", "read", "jdbc", 0.67),
    ("write", "staged", "jdbc", 0.7),
)
TITLES = {
    "read_wide": "read 14 columns, with JSON",
    "read_narrow": "read 5 narrow columns",
    "count": "`count()`",
    "group": '`groupBy("task", "queue").count()`',
    "write": "write",
}

# By the number of rows: who reads, and what is written.
GROWN = {
    "read": "read by `read()`",
    "pgqueue": 'by `format("pgqueue")`',
    "jdbc": "by JDBC",
    "staged": "written",
}

# Messages a second, at least.
INGEST_GOAL = 80_000


def ratio(told: dict[str, Any], one: str, other: str, what: str = "seconds") -> float:
    """Return how many times as fast *one* is as *other*: the median of the turns'."""
    pairs = zip(told[one][what], told[other][what], strict=True)
    return median(b / a for a, b in pairs)


def setting(results: dict[str, Any]) -> str:
    """Return what it was measured on, in a sentence."""
    told = {**results["machine"], **results["versions"]}
    return (
        f"{told['processor']}, {told['cores']} cores, {told['memory']}; "
        f"PostgreSQL {told['PostgreSQL']}, PySpark {told['PySpark']} on `local[2]`, "
        f"Java {told['Java']}, {told['JDBC driver']}; {results['at'][:10]}."
    )


def figures(results: dict[str, Any]) -> str:
    """Return the rates of each side."""
    rows = []
    for part, title in TITLES.items():
        count = results["rows"]["write" if part == "write" else "read"]
        for name, told in results[part].items():
            rates = [count / seconds for seconds in told["seconds"]]
            spread = f"{table.shown(min(rates))} to {table.shown(max(rates))}"
            processor = median(told["processor"]) / count * 1e6
            rows.append(
                (
                    f"{title}, {count:,} rows",
                    NAMES[name],
                    f"{table.shown(median(rates))} ({spread})",
                    f"{processor:.1f}" if name != "copy" else "",
                )
            )
    return table.table(("", "by", "rows/s", "µs of processors a row"), rows)


def goals(results: dict[str, Any]) -> str:
    """Return the ratios beside their goals."""
    rows = []
    for part, one, other, goal in GOALS:
        reached = ratio(results[part], one, other)
        rows.append(
            (
                f"{TITLES[part]}: {NAMES[one]} / {NAMES[other]}",
                f"{reached:.2f}",
                _processors(results[part], one, other),
                f"ratio >= {goal:g}",
                "met" if reached >= goal else "**missed**",
            )
        )
    return table.table(("", "ratio", "of processor time", "goal", ""), rows)


def growth(results: dict[str, Any]) -> str:
    """Return rates by the number of rows."""
    rows = [
        (
            f"{int(count):,}",
            *(
                table.shown(median(int(count) / each for each in told[name]["seconds"]))
                for name in GROWN
                if name in told
            ),
        )
        for count, told in results["growth"].items()
    ]
    told = next(iter(results["growth"].values()))
    return table.table(("rows", *(GROWN[name] for name in GROWN if name in told)), rows)


def cold(results: dict[str, Any]) -> str:
    """Return what a session takes that reads once."""
    rows = [
        (NAMES[name], f"{median(told['seconds']):.1f} s")
        for name, told in results["cold"].items()
    ]
    title = f"start a session, read {results['rows']['cold']:,} rows once"
    return table.table((title, ""), rows)


def ingest(results: dict[str, Any]) -> str:
    """Return what the pipeline job ingest reached, beside its goal."""
    seconds = results["ingest"]["seconds"]
    rates = [results["rows"]["ingest"] / each for each in seconds]
    spread = f"{table.shown(min(rates))} to {table.shown(max(rates))}"
    verdict = "met" if median(rates) >= INGEST_GOAL else "**missed**"
    rows = [
        (f"Median of {len(rates)} turns", f"{table.shown(median(rates))} ({spread})"),
        ("Goal", f"{INGEST_GOAL:,}: {verdict}"),
    ]
    return table.table(("", "messages/s"), rows)


def _processors(told: dict[str, Any], one: str, other: str) -> str:
    # One COPY's client is this process, whose ticks are too coarse for a ratio.
    return "" if other == "copy" else f"{ratio(told, one, other, 'processor'):.2f}"
