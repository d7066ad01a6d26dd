"""Goal: what a figure should reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
