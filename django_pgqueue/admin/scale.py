"""Scale: round numbers for an axis, and lengths of time in a unit that fits them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

# Lines of a grid, about so many.
TICKS_WANTED = 4

# Steps that people count in, times a power of ten.
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)

# Below so many seconds, a unit, how many of it a second has, and its name.
UNITS = (
    (1.0, 1_000.0, "ms", _("milliseconds")),
    (120.0, 1.0, "s", _("seconds")),
    (7_200.0, 1 / 60, "min", _("minutes")),
    (172_800.0, 1 / 3_600, "h", _("hours")),
    (math.inf, 1 / 86_400, "d", _("days")),
)


@dataclass(frozen=True, slots=True)
class Unit:
    """In what the values of a chart are shown, and how many of it one value is."""

    factor: float
    sign: str
    name: str | Promise


@dataclass(frozen=True, slots=True)
class Scale:
    """From 0 to a round number; ticks in its unit."""

    top: float
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """Return where *value* is between 0 and the top, as a part of 1."""
        return min(max(value / self.top, 0.0), 1.0)


def scale(highest: float, *, is_whole: bool = False) -> Scale:
    """
    Return a scale on which *highest* has its place.

    Args:
        highest: The highest value; 0 or less for none.
        is_whole: Values are counts, so no tick is a fraction.
    """
    if highest <= 0:
        return Scale(1.0, (0.0, 1.0))
    rough = highest / TICKS_WANTED
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in STEPS if step * power >= rough * 0.999)
    if is_whole:
        step = max(math.ceil(step), 1.0)
    count = math.ceil(highest / step * 0.999)
    return Scale(step * count, tuple(step * place for place in range(count + 1)))


def unit_of(seconds: float) -> Unit:
    """Return the unit in which *seconds*, the longest of some, is shown."""
    return next(
        Unit(factor, sign, name)
        for below, factor, sign, name in UNITS
        if seconds < below
    )


def span(seconds: float | None) -> str:
    """Return a length of time as text: 230 ms, 3.2 s, 45 s, 12 min; "" for none."""
    if seconds is None:
        return ""
    unit = unit_of(seconds)
    return f"{number(seconds * unit.factor)} {unit.sign}"


def number(value: float) -> str:
    """Return *value* with three digits at least, and no digit that says nothing."""
    if value == 0 or value >= 100:
        return f"{value:,.0f}"
    digits = 1 if value >= 10 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if float(text) else f"{value:.1g}"
