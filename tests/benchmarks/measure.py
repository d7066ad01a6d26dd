"""
Measure: this queue beside plain psycopg, or beside itself, in pairs of runs.

A measure is a generator function: it opens what it needs, yields a function that runs
one pair, and cleans up. `measure()` gives it a name, a line for people and its goals.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from statistics import median, quantiles
from typing import Any

from tests.benchmarks.scratch import Scratch

PERCENTS = (50, 95, 99)
PLAIN = "plain psycopg"
ALL = "all"

# One rate, or one latency for each job.
Values = list[float] | float
Side = Callable[[int], Values]


@dataclass(frozen=True, slots=True)
class Pair:
    """One run of the product, and of what it is compared with, side by side."""

    product: Values
    other: Values
    also: Mapping[str, float] = field(default_factory=dict)  # More about the product.


PairRun = Callable[[int], Pair]
Opened = Callable[[Scratch], Generator[PairRun, None, None]]


def sides(scratch: Scratch, product: Side, other: Side) -> PairRun:
    """Return a pair of two sides that each begin with empty tables."""

    def pair(jobs: int) -> Pair:
        scratch.empty()
        values = product(jobs)
        scratch.empty()
        return Pair(values, other(jobs))

    return pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One name on the command line."""

    name: str
    what: str  # A line for people.
    goals: tuple[str, ...]  # As "ratio >= 0.8": a figure, and its limit.
    parts: Mapping[str, Opened]  # Usually one; else as good as its worst.
    counted: Sequence[str] = ()  # The parts that goals are about; (): all.
    unit: str = "jobs/s"
    jobs: int = 20_000  # In one run; 0: it has none.
    jobs_min: int = 1  # Below this, the figure would mean nothing.
    warm_up: int = 500  # Jobs of a pair before those that count.
    beside: str = PLAIN
    needs: str = ""  # A module of a package that need not be installed.

    @property
    def can_run(self) -> bool:
        """Whether the package that it needs is installed."""
        return not self.needs or find_spec(self.needs.partition(".")[0]) is not None


MEASURES: dict[str, Measure] = {}


def measure(
    name: str, what: str, *goals: str, parts: Mapping[str, Opened], **options: Any
) -> None:
    """Add a measure; see Measure."""
    MEASURES[name] = Measure(name=name, what=what, goals=goals, parts=parts, **options)


def chosen(pattern: str) -> list[str]:
    """
    Return the names that *pattern* means: a name, "all", or one with * and ?.

    Raises:
        ValueError: None.
    """
    names = fnmatch.filter(MEASURES, "*" if pattern == ALL else pattern)
    if names != [pattern]:
        names = [name for name in names if MEASURES[name].can_run]
    if not names:
        raise ValueError(f"{pattern!r} is no measure; there are {', '.join(MEASURES)}")
    return names


def run(scratch: Scratch, each: Measure, runs: int, jobs: int | None) -> dict[str, Any]:
    """Measure every part, pair after pair; return what JSON has of it."""
    jobs = max(jobs or each.jobs, each.jobs_min) if each.jobs else 0
    parts: dict[str, dict[str, Any]] = {}
    for part, opened in each.parts.items():
        label = f"{each.name} {part}".strip()
        pairs = []
        with contextmanager(opened)(scratch) as pair:
            if each.warm_up:
                pair(min(jobs, each.warm_up))
            for number in range(1, runs + 1):
                pairs.append(pair(jobs))
                product, other = (
                    median(_values(side))
                    for side in (pairs[-1].product, pairs[-1].other)
                )
                scratch.say(
                    f"{label} {number}/{runs}: {product:,.2f} {each.unit}, beside "
                    f"{other:,.2f}"
                )
        scratch.empty()
        parts[part] = _figures(each, pairs)
    counted = [parts[name] for name in each.counted or parts]
    worst = min(counted, key=lambda figures: figures["ratio"])
    met = [_is_met(goal, worst, parts.values()) for goal in each.goals]
    told = {
        **worst,
        "baseline": each.beside,
        "jobs": jobs,
        "runs": runs,
        "goal": "; ".join(each.goals) or None,
        "met": all(met) if met else None,
    }
    return {**told, "parts": parts} if len(parts) > 1 else told


def _figures(each: Measure, pairs: Sequence[Pair]) -> dict[str, Any]:
    # The two of a pair ran one after the other, so what slows the machine for a minute
    # slows both: the ratio is not that of the medians.
    ratios = [
        median(_values(pair.product)) / median(_values(pair.other)) for pair in pairs
    ]
    product = _summary(each, [pair.product for pair in pairs])
    for name in pairs[0].also:
        product[name] = _rounded(median(pair.also[name] for pair in pairs))
    return {
        "product": product,
        "yardstick": _summary(each, [pair.other for pair in pairs]),
        "ratio": round(median(ratios), 3),
    }


def _summary(each: Measure, runs: Sequence[Values]) -> dict[str, Any]:
    values = [value for run in runs for value in _values(run)]
    figures = {"median": median(values), "min": min(values), "max": max(values)}
    if len(values) > len(runs):
        cuts = quantiles(values, n=100, method="inclusive")
        figures |= {f"p{percent}": cuts[percent - 1] for percent in PERCENTS}
    return {
        **{name: _rounded(value) for name, value in figures.items()},
        "unit": each.unit,
    }


def _is_met(goal: str, worst: dict[str, Any], parts: Any) -> bool:
    figure, sign, limit = goal.split()[:3]
    values = [worst["ratio"]] if figure == "ratio" else []
    if figure in ("median", "p50", "p99"):
        values = [worst["product"][figure]]
    values = values or [
        part["product"][figure] for part in parts if figure in part["product"]
    ]
    bound = float(limit.replace(",", ""))
    return all(v <= bound if sign == "<=" else v >= bound for v in values)


def _values(values: Values) -> list[float]:
    return values if isinstance(values, list) else [values]


def _rounded(value: float) -> float:
    return round(value, 1) if value >= 100 else round(value, 3)
