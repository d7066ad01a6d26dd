"""Measure: what all measures are, what they should reach, and what comes of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from statistics import median, quantiles
from typing import Any, Protocol

from django.core.management.base import CommandError

from django_pgqueue.management.bench import yardstick
from django_pgqueue.management.bench.scratch import Scratch

PERCENTS = (50, 95, 99)

PLAIN = "plain psycopg"


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit of one figure."""

    figure: str  # A key of the product's figures, or "ratio".
    limit: float
    unit: str = ""
    is_at_most: bool = False

    @property
    def text(self) -> str:
        """Return it for people."""
        sign = "<=" if self.is_at_most else ">="
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.figure} {sign} {self.limit:,g}{unit}"

    def is_met(self, figures: Mapping[str, Any]) -> bool:
        """Whether *figures* reach it."""
        value = figures.get(self.figure)
        if value is None:  # It cannot be measured here.
            return True
        return bool(value <= self.limit if self.is_at_most else value >= self.limit)


def at_least(limit: float, figure: str = "ratio", unit: str = "") -> Goal:
    """Return the goal of a ratio, or of another figure that should be large."""
    return Goal(figure, limit, unit)


def at_most(figure: str, limit: float, unit: str = "") -> Goal:
    """Return the goal of a figure that should be small."""
    return Goal(figure, limit, unit, is_at_most=True)


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of one side gave."""

    values: list[float]  # One rate, or one latency per job.
    also: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pair:
    """One run of the product, and of what it is compared with, side by side."""

    product: Run
    yardstick: Run


class Sides(Protocol):
    """The two things that a measure compares."""

    def pair(self, jobs: int) -> Pair:
        """Measure both, one after the other, with *jobs* jobs each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the command line said."""

    runs: int
    jobs: int | None = None  # None: as the measure says.
    rows: int
    seconds: float
    say: Callable[[str], None]  # What takes a while now; a few words.


Opener = Callable[[Scratch, Plan], AbstractContextManager[Sides]]


class Turns(ABC):
    """Sides whose two runs have nothing in common but the number of jobs."""

    def __init__(self, scratch: Scratch) -> None:
        self.scratch = scratch

    def pair(self, jobs: int) -> Pair:
        """Measure the product, then the yardstick."""
        self.scratch.empty()
        product = self.product(jobs)
        self.scratch.empty()
        return Pair(product, self.yardstick(jobs))

    @abstractmethod
    def product(self, jobs: int) -> Run:
        """Measure the product."""

    @abstractmethod
    def yardstick(self, jobs: int) -> Run:
        """Measure what it is compared with."""


def beside_connection(
    make: Callable[[Scratch, yardstick.Connection], Sides],
) -> Mapping[str, Opener]:
    """Return the one part of a measure that needs a plain connection and no worker."""

    @contextmanager
    def opened(scratch: Scratch, plan: Plan) -> Iterator[Sides]:
        with scratch.connect() as connection:
            yield make(scratch, connection)

    return {"": opened}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One name on the command line."""

    name: str
    what: str  # A line for people.
    unit: str
    jobs: int  # In one run, unless --jobs says otherwise; 0: it has none.
    goals: tuple[Goal, ...] = ()
    baseline: str = PLAIN  # What the product is compared with.
    other_side: str = "yardstick"  # The same as a label; "": it is not worth a line.
    # Below this, the figure would mean nothing.
    jobs_min: int = 1
    # In a pair before those that count: connections are opened, code and plans are
    # warm. 0: none.
    warm_up_jobs: int = 500
    is_latency: bool = False
    # Usually one; a measure of several shapes is as good as its worst.
    parts: Mapping[str, Opener]
    # The others are shown, and no goal is about their ratio; None: all count.
    counted: Sequence[str] | None = None
    # A module of a package that need not be there; "": it needs none.
    needs: str = ""

    @property
    def can_run(self) -> bool:
        """Whether what it needs is installed."""
        try:
            return not self.needs or find_spec(self.needs) is not None
        except ModuleNotFoundError:
            return False

    def jobs_of(self, plan: Plan) -> int:
        """Return the jobs of one run."""
        return max(plan.jobs or self.jobs, self.jobs_min) if self.jobs else 0


@dataclass(slots=True)
class Pairs:
    """What was measured of one part, in pairs."""

    measure: Measure
    part: str = ""
    pairs: list[Pair] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """
        The median of the pairs' ratios, product to yardstick.

        Not the ratio of the medians: the two of a pair ran one after the other, so
        what slows the machine for a minute slows both.
        """
        return median(
            median(pair.product.values) / median(pair.yardstick.values)
            for pair in self.pairs
        )

    @property
    def product(self) -> dict[str, Any]:
        """The figures of the product."""
        return self._summary([pair.product for pair in self.pairs])

    @property
    def yardstick(self) -> dict[str, Any]:
        """The figures of what it is compared with."""
        return self._summary([pair.yardstick for pair in self.pairs])

    def as_json(self) -> dict[str, Any]:
        """Return both sides and the ratio."""
        return {
            "product": self.product,
            "yardstick": self.yardstick,
            "ratio": round(self.ratio, 3),
        }

    def _summary(self, runs: list[Run]) -> dict[str, Any]:
        values = [value for run in runs for value in run.values]
        summary: dict[str, Any] = {
            "median": _rounded(median(values)),
            "min": _rounded(min(values)),
            "max": _rounded(max(values)),
            "unit": self.measure.unit,
        }
        if self.measure.is_latency:
            cuts = quantiles(values, n=100, method="inclusive")
            for percent in PERCENTS:
                summary[f"p{percent}"] = _rounded(cuts[percent - 1])
        for name in runs[0].also:
            summary[name] = _rounded(median(run.also[name] for run in runs))
        return summary


@dataclass(slots=True)
class Result:
    """What was measured of one measure."""

    measure: Measure
    jobs: int
    parts: list[Pairs]

    @property
    def worst(self) -> Pairs:
        """The part with the lowest ratio, of those that count."""
        counted = self.measure.counted
        some = [p for p in self.parts if counted is None or p.part in counted]
        return min(some, key=lambda pairs: pairs.ratio)

    @property
    def is_met(self) -> bool | None:
        """Whether all goals are; None: there are none."""
        if not self.measure.goals:
            return None
        return all(goal.is_met(self.figures) for goal in self.measure.goals)

    @property
    def also(self) -> list[str]:
        """The names of what parts tell beside their rate."""
        names = [name for part in self.parts for name in part.pairs[0].product.also]
        return list(dict.fromkeys(names))

    @property
    def figures(self) -> dict[str, Any]:
        """What goals are about: those of the product in the worst part, and ratio."""
        figures = {**self.worst.product, "ratio": self.worst.ratio}
        for name in self.also:
            # The worst of each, which need not be all in the part of the worst ratio.
            told = [part.product for part in self.parts]
            figures[name] = self._worst_of(name)([t[name] for t in told if name in t])
        return figures

    def _worst_of(self, name: str) -> Callable[[list[Any]], Any]:
        goals = {goal.figure: goal for goal in self.measure.goals}
        return max if name not in goals or goals[name].is_at_most else min

    def as_json(self) -> dict[str, Any]:
        """Return what --json prints under the measure's name."""
        told: dict[str, Any] = {
            **self.worst.as_json(),
            "baseline": self.measure.baseline,
            "jobs": self.jobs,
            "runs": len(self.worst.pairs),
            "goal": "; ".join(goal.text for goal in self.measure.goals) or None,
            "met": self.is_met,
        }
        if len(self.parts) > 1:
            told["parts"] = {pairs.part: pairs.as_json() for pairs in self.parts}
        return told


def run_measure(
    measure: Measure, scratch: Scratch, plan: Plan, tell: Callable[[Pairs], None]
) -> Result:
    """
    Measure every part, pair after pair; *tell* is called after each pair.

    Raises:
        CommandError: What it needs is not installed.
    """
    if not measure.can_run:
        package = measure.needs.rpartition(".")[0].replace(".", "-")
        raise CommandError(
            f"{measure.name} needs {package}, which is not installed: run "
            f"pip install {package}, or measure something else."
        )
    jobs = measure.jobs_of(plan)
    result = Result(measure, jobs, [])
    for part, opener in measure.parts.items():
        pairs = Pairs(measure, part)
        plan.say(f"{measure.name} {part}".strip())
        with opener(scratch, plan) as sides:
            if measure.warm_up_jobs:
                sides.pair(min(jobs, measure.warm_up_jobs))
            for _ in range(plan.runs):
                pairs.pairs.append(sides.pair(jobs))
                tell(pairs)
        scratch.empty()
        result.parts.append(pairs)
    return result


def _rounded(value: float) -> float:
    return round(value, 1) if value >= 100 else round(value, 3)
