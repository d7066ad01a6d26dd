"""
Chart: bars and lines as shapes of SVG, made here and drawn by chart.html.

No script and no style in the page. Across, places are percentages, so that a chart is
as wide as its column while its letters and lines keep their size; upward, they are
pixels. Colours are classes of admin.css. What a chart shows is also said in words, and
stands in a table beside it. Upward, an axis has round numbers; across, spans of time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.functional import Promise
from django.utils.translation import gettext as _


@dataclass(frozen=True, slots=True)
class Progress:
    """Done of total, as a bar shows it."""

    done: float
    total: float
    text: str


def read_progress(text: str | None) -> Progress | None:
    """
    Return the progress in a column's JSON *text*.

    None: there is none, or it is not what a task's context writes; then it is shown as
    the payload that it is.
    """
    try:
        value = json.loads(text or "null")
        done, total = value["done"], value["total"]
        is_bar = 0 <= done <= total and 0 < total < float("inf")
    except (ValueError, RecursionError, TypeError, LookupError):
        return None
    if not is_bar:
        return None
    return Progress(done, total, f"{done:,} / {total:,} ({done / total:.0%})")


# Characters of the column that are read; a run writes a hundred.
CHARACTERS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class RunProgress:
    """What a run said of itself; "" and 0 where it said nothing that can be read."""

    phase: str = ""
    tasks_done: int = 0
    tasks: int = 0
    rows_per_second: float = 0.0

    @property
    def text(self) -> str:
        """Return it in words: reading, 3 of 12 tasks."""
        parts = [self.phase] if self.phase else []
        if self.tasks:
            counts = {"done": f"{self.tasks_done:,}", "tasks": f"{self.tasks:,}"}
            parts.append(_("%(done)s of %(tasks)s tasks") % counts)
        return ", ".join(parts)

    @property
    def rate(self) -> str:
        """Return how many rows it has read a second, or ""."""
        if not self.rows_per_second:
            return ""
        return _("%(rows)s rows/s") % {"rows": number(self.rows_per_second)}

    def bar(self) -> Progress | None:
        """Return what a bar shows: the tasks of Spark that are done."""
        if not self.tasks > 0 or not 0 <= self.tasks_done <= self.tasks:
            return None
        return Progress(self.tasks_done, self.tasks, self.text)


def read_run_progress(text: str | None) -> RunProgress:
    """Return the progress in a column's JSON *text*, whatever that holds."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return RunProgress()
    if not isinstance(value, dict):
        return RunProgress()
    phase, rate = value.get("phase"), value.get("rows_per_second")
    return RunProgress(
        phase=phase if isinstance(phase, str) else "",
        tasks_done=_whole(value.get("tasks_done")),
        tasks=_whole(value.get("tasks")),
        rows_per_second=rate
        if isinstance(rate, (int, float)) and 0 <= rate < 1e15
        else 0.0,
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**53 else 0


HOUR_SECONDS = 3_600

# Spans of a chart at least, where less was counted yet.
SPANS_LEAST = 12

# Up to so many hours, hours are named along the time; up to so many, days of the week.
HOURS_NAMED_MAX, WEEKDAYS_NAMED_MAX = 48, 168
# Up to so many, each so many minutes.
MINUTES_NAMED_HOURS_MAX, MINUTES_NAMED = 2, 10


@dataclass(frozen=True, slots=True)
class Period:
    """How far back a chart goes, and in which steps."""

    label: str | Promise
    hours: int
    step_hours: int = 1


def starts(period: Period, now: int, first: int | None = None) -> list[int]:
    """
    Return when the spans of *period* begin, in seconds since 1970; the last has *now*.

    Args:
        period: How far back.
        now: The clock.
        first: The first hour that was ever counted: before it, few spans are empty.
    """
    step = period.step_hours * HOUR_SECONDS
    end = now // step * step + step
    begin = end - period.hours * HOUR_SECONDS
    if first is not None:
        begin = max(begin, min(first // step * step, end - SPANS_LEAST * step))
    return list(range(begin, end, step))


def local(epoch: float) -> datetime:
    """Return so many seconds after 1970 in the time zone of the project."""
    return datetime.fromtimestamp(epoch, timezone.get_current_timezone())


def named(at: Sequence[datetime], step_seconds: int) -> tuple[list[str], list[bool]]:
    """Return how each span is named along the time, and which may have their name."""
    hours = len(at) * step_seconds / HOUR_SECONDS

    def begins(seconds: int) -> list[bool]:
        """Which are the first after a multiple of so many seconds since midnight."""
        return [_since_midnight(moment) % seconds < step_seconds for moment in at]

    if hours <= HOURS_NAMED_MAX:
        every = MINUTES_NAMED * 60
        if hours > MINUTES_NAMED_HOURS_MAX:
            every = (2 if hours <= SPANS_LEAST else 4) * HOUR_SECONDS
        return [date_format(moment, "H:i") for moment in at], begins(every)
    pattern = "D j" if hours <= WEEKDAYS_NAMED_MAX else "j M"
    return [date_format(moment, pattern) for moment in at], begins(24 * HOUR_SECONDS)


def _since_midnight(moment: datetime) -> int:
    return moment.hour * HOUR_SECONDS + moment.minute * 60 + moment.second


def when(moment: datetime, step_seconds: int) -> str:
    """Return from when until when a span is that begins at *moment*."""
    until = moment + timedelta(seconds=step_seconds)
    if step_seconds < 24 * HOUR_SECONDS:
        return f"{date_format(moment, 'D j M, H:i')}\u2013{date_format(until, 'H:i')}"
    return f"{date_format(moment, 'j M')}\u2013{date_format(until, 'j M')}"


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


# Pixels of the part that has the values, and what is above of it for the top label.
HEIGHT, ABOVE = 170, 10

# Pixels of a trend within a line of a list.
SPARKLINE_HEIGHT = 22

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


# A shape of SVG, or a label: its attributes, as chart.html writes them.
Shape = dict[str, str]


@dataclass(frozen=True, slots=True)
class Chart:
    """What chart.html draws."""

    key: str
    title: Text
    unit: Text
    told: Text
    series: Sequence[Series]
    ticks: Sequence[Shape]
    labels: Sequence[Shape]
    bars: Sequence[Shape] = ()
    segments: Sequence[Shape] = ()
    spots: Sequence[Shape] = ()
    is_lines: bool = False
    height: int = ABOVE + HEIGHT
    above: int = ABOVE


def over_time(
    at: Sequence[datetime],
    step_seconds: int,
    parts: Sequence[Series],
    *,
    axis: Scale,
    text: Callable[[float], str],
    is_lines: bool = False,
    **words: Any,
) -> Chart:
    """
    Return a chart over time.

    Args:
        at: When each span begins.
        step_seconds: How long each is.
        parts: What is drawn; where it is one, pointing at it does not name it.
        axis: Upward.
        text: Writes a value.
        is_lines: Lines, and no bars.
        words: Key, title, unit, and what is said of it.
    """
    names, wanted = named(at, step_seconds)

    def pointed(place: int) -> list[str]:
        values = [(part.name, part.values[place]) for part in parts]
        texts = [(name, text(value)) for name, value in values if value is not None]
        return [each if len(parts) == 1 else f"{name}: {each}" for name, each in texts]

    return Chart(
        **words,
        series=parts,
        ticks=grid(axis, text),
        labels=labels(names, wanted),
        bars=[] if is_lines else stacked(parts, axis),
        segments=lines(parts, axis) if is_lines else [],
        spots=spots(
            [
                "\n".join([when(moment, step_seconds), *pointed(place)])
                for place, moment in enumerate(at)
            ]
        ),
        is_lines=is_lines,
    )


def stacked(
    parts: Sequence[Series], scale: Scale, *, height: int = HEIGHT, above: int = ABOVE
) -> list[Shape]:
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
            high = max(scale.share(value) * height, 1.0)
            bars.append(
                {
                    "css": part.css,
                    "x": _percent((place + (1 - FILLED) / 2) * width),
                    "y": _pixel(above + height - base - high),
                    "width": _percent(width * FILLED),
                    "height": _pixel(high),
                }
            )
            base += high
    return bars


def sparkline(values: Sequence[float | None]) -> list[Shape]:
    """Return small bars of *values*, the highest as high as a line of text."""
    highest = max((value or 0.0 for value in values), default=0.0)
    return stacked(
        [Series("", "pgqueue-worst", values)],
        Scale(highest or 1.0, ()),
        height=SPARKLINE_HEIGHT,
        above=0,
    )


def lines(parts: Sequence[Series], scale: Scale) -> list[Shape]:
    """Return the lines of *parts*: a gap where nothing was measured, a dot alone."""
    found = []
    for part in parts:
        width = 100 / max(len(part.values), 1)
        places = [
            None if value is None else (_percent((at + 0.5) * width), _up(scale, value))
            for at, value in enumerate(part.values)
        ]
        for before, here, after in zip(
            [None, *places], places, [*places[1:], None], strict=False
        ):
            if here is None:
                continue
            x, y = here
            if before is not None:
                ends = {"x1": before[0], "y1": before[1], "x2": x, "y2": y}
                found.append({"css": part.css, **ends})
            elif after is None:
                found.append({"css": part.css, "x1": x, "y1": y})
    return found


def spots(texts: Sequence[str]) -> list[Shape]:
    """Return a place to point at for each of *texts*."""
    width = 100 / max(len(texts), 1)
    return [
        {"x": _percent(place * width), "width": _percent(width), "text": text}
        for place, text in enumerate(texts)
    ]


def grid(scale: Scale, text: Callable[[float], str] = number) -> list[Shape]:
    """Return the lines of the grid, from 0 upward."""
    return [{"at": _up(scale, value), "text": text(value)} for value in scale.ticks]


def labels(texts: Sequence[str], is_wanted: Sequence[bool]) -> list[Shape]:
    """Return the labels below those places that are wanted, a few of them."""
    wanted = [place for place, wants in enumerate(is_wanted) if wants]
    every = -(-len(wanted) // LABELS_MAX) or 1
    width = 100 / max(len(texts), 1)
    return [
        {"at": _percent((place + 0.5) * width), "text": texts[place]}
        for place in wanted[::every]
    ]


def _up(scale: Scale, value: float) -> str:
    return _pixel(ABOVE + HEIGHT * (1 - scale.share(value)))


def _percent(value: float) -> str:
    return f"{value:.3f}%"


def _pixel(value: float) -> str:
    return f"{value:.1f}"
