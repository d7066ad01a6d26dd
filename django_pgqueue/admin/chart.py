"""
Chart: bars and lines as shapes of SVG, made here and drawn by chart.html.

No script and no style in the page. Across, places are percentages, so that a chart is
as wide as its column while its letters and lines keep their size; upward, they are
pixels. Colours are classes of admin.css. What a chart shows is also said in words, and
stands in a table beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.utils.functional import Promise

from django_pgqueue.admin.scale import Scale, number

# Pixels of the part that has the values, and what is above of it for the top label.
HEIGHT, ABOVE = 170, 10

# Labels along the time; more would touch on a telephone.
LABELS_MAX = 7

# Of the width that a bar has, the part that it fills.
FILLED = 0.82

Text = str | Promise


@dataclass(frozen=True, slots=True)
class Series:
    """
    Values of one kind, one for each place; None: nothing was measured there.

    Attributes:
        name: In the legend.
        css: Its colour: a class of admin.css.
        values: In order.
    """

    name: Text
    css: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid, or a label below."""

    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a bar."""

    css: str
    x: str
    y: str
    width: str
    height: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a line, or a dot where a value stands alone."""

    css: str
    x1: str
    y1: str
    x2: str = ""
    y2: str = ""


@dataclass(frozen=True, slots=True)
class Spot:
    """What is told about one place when it is pointed at."""

    x: str
    width: str
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """What chart.html draws."""

    key: str
    title: Text
    unit: Text
    told: Text
    series: Sequence[Series]
    ticks: Sequence[Tick]
    labels: Sequence[Tick]
    bars: Sequence[Bar] = ()
    segments: Sequence[Segment] = ()
    spots: Sequence[Spot] = ()
    is_lines: bool = False
    height: int = ABOVE + HEIGHT
    above: int = ABOVE


def stacked(parts: Sequence[Series], scale: Scale) -> list[Bar]:
    """Return bars in which the values of *parts* stand upon each other."""
    if not parts or not parts[0].values:
        return []
    width = 100 / len(parts[0].values)
    bars = []
    for place in range(len(parts[0].values)):
        base = 0.0
        for part in parts:
            value = part.values[place] or 0.0
            if value <= 0:
                continue
            # One pixel at least: a single dead letter among thousands is seen.
            high = max(scale.share(value) * HEIGHT, 1.0)
            bars.append(
                Bar(
                    part.css,
                    _percent((place + (1 - FILLED) / 2) * width),
                    _pixel(ABOVE + HEIGHT - base - high),
                    _percent(width * FILLED),
                    _pixel(high),
                )
            )
            base += high
    return bars


def lines(parts: Sequence[Series], scale: Scale) -> list[Segment]:
    """Return the lines of *parts*; a gap where nothing was measured."""
    found = []
    for part in parts:
        width = 100 / max(len(part.values), 1)
        places = [
            None
            if value is None
            else (_percent((place + 0.5) * width), _up(scale, value))
            for place, value in enumerate(part.values)
        ]
        for place, here in enumerate(places):
            before = places[place - 1] if place else None
            after = places[place + 1] if place + 1 < len(places) else None
            if here is not None and before is not None:
                found.append(Segment(part.css, *before, *here))
            elif here is not None and after is None:
                found.append(Segment(part.css, *here))
    return found


def spots(texts: Sequence[str]) -> list[Spot]:
    """Return a place to point at for each of *texts*."""
    width = 100 / max(len(texts), 1)
    return [
        Spot(_percent(place * width), _percent(width), text)
        for place, text in enumerate(texts)
    ]


def grid(scale: Scale, text: Callable[[float], str] = number) -> list[Tick]:
    """Return the lines of the grid, from 0 upward."""
    return [Tick(_up(scale, value), text(value)) for value in scale.ticks]


def labels(texts: Sequence[str], is_wanted: Sequence[bool]) -> list[Tick]:
    """Return the labels below those places that are wanted, a few of them."""
    wanted = [place for place, wants in enumerate(is_wanted) if wants]
    every = -(-len(wanted) // LABELS_MAX) or 1
    width = 100 / max(len(texts), 1)
    return [
        Tick(_percent((place + 0.5) * width), texts[place]) for place in wanted[::every]
    ]


def _up(scale: Scale, value: float) -> str:
    return _pixel(ABOVE + HEIGHT * (1 - scale.share(value)))


def _percent(value: float) -> str:
    return f"{value:.3f}%"


def _pixel(value: float) -> str:
    return f"{value:.1f}"
