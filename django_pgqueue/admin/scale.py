"""Scale: round numbers for an axis, of a fitting unit where it has times."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Lines of a grid, about so many.
TICKS_WANTED = 4

# Steps that people count in, times a power of ten.
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)

# Units of time, in seconds: ticks are round numbers of the largest that fits.
UNITS = (86_400.0, 3_600.0, 60.0, 1.0)
MILLISECOND = 0.001


@dataclass(frozen=True, slots=True)
class Scale:
    """From 0 to a round number."""

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


def time_scale(longest: float) -> Scale:
    """Return a scale for seconds, the *longest* of them among others."""
    unit = next((size for size in UNITS if longest >= size), MILLISECOND)
    rounded = scale(longest / unit)
    return Scale(rounded.top * unit, tuple(tick * unit for tick in rounded.ticks))


def number(value: float) -> str:
    """Return *value* with three digits at least, and no digit that says nothing."""
    if value == 0 or value >= 100:
        return f"{value:,.0f}"
    digits = 1 if value >= 10 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if float(text) else f"{value:.1g}"
