"""Measure: what all measures are, and how product and yardstick take turns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, Protocol

from django_pgqueue.management.bench.scratch import Scratch

# Before the pairs that count: connections are opened, code and plans are warm.
WARM_UP_JOBS_MAX = 500


class Sides(Protocol):
    """The two things that a measure compares. Each call is one run of its side."""

    def product(self, jobs: int) -> list[float]:
        """Return what was measured: one rate, or one latency per job."""

    def yardstick(self, jobs: int) -> list[float]:
        """Return the same for plain psycopg."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One name on the command line."""

    name: str
    what: str  # A line for people.
    unit: str
    jobs: int  # In one run, unless --jobs says otherwise.
    open: Callable[[Scratch], AbstractContextManager[Sides]]
    is_latency: bool = False


@dataclass
class Pairs:
    """What was measured, in pairs."""

    measure: Measure
    product: list[list[float]] = field(default_factory=list)
    yardstick: list[list[float]] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """
        The median of the pairs' ratios, product to yardstick.

        Not the ratio of the medians: the two of a pair ran one after the other, so
        what slows the machine for a minute slows both.
        """
        pairs = zip(self.product, self.yardstick, strict=True)
        return median(median(ours) / median(plain) for ours, plain in pairs)

    def as_json(self) -> dict[str, Any]:
        """Return what --json prints under the measure's name."""
        return {
            "product": self._summary(self.product),
            "yardstick": self._summary(self.yardstick),
            "ratio": round(self.ratio, 3),
        }

    def _summary(self, runs: list[list[float]]) -> dict[str, Any]:
        values = [value for run in runs for value in run]
        summary: dict[str, Any] = {
            "median": _rounded(median(values)),
            "min": _rounded(min(values)),
            "max": _rounded(max(values)),
            "unit": self.measure.unit,
        }
        if self.measure.is_latency:
            cuts = quantiles(values, n=100, method="inclusive")
            for percent in (50, 95, 99):
                summary[f"p{percent}"] = _rounded(cuts[percent - 1])
        return summary


def run_pairs(
    measure: Measure,
    scratch: Scratch,
    *,
    jobs: int,
    runs: int,
    tell: Callable[[Pairs], None],
) -> Pairs:
    """Run product, yardstick, product, …; *tell* is called after each pair."""
    pairs = Pairs(measure)
    with measure.open(scratch) as sides:
        for side in (sides.product, sides.yardstick):
            scratch.empty()
            side(min(jobs, WARM_UP_JOBS_MAX))
        for _ in range(runs):
            scratch.empty()
            pairs.product.append(sides.product(jobs))
            scratch.empty()
            pairs.yardstick.append(sides.yardstick(jobs))
            tell(pairs)
    scratch.empty()
    return pairs


def _rounded(value: float) -> float:
    return round(value, 1) if value >= 100 else round(value, 3)
