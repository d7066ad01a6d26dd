"""
Workflow graph: the steps of a workflow as shapes of SVG, drawn by graph.html.

From left to right, each box right of all that it comes after; no script and no style in
the page. Each box leads to its steps in the table below, where the jobs are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.http import urlencode
from django.utils.translation import gettext as _

from django_pgqueue.admin.workflow_folds import Fold, Folded, folded
from django_pgqueue.live_states import UNNEEDED
from django_pgqueue.models.workflow import StepState
from django_pgqueue.operators import human
from django_pgqueue.operators.workflows import KINDS, label_of
from django_pgqueue.queues.workflows import Alike

# The fragment of the table of steps.
TABLE = "pgqueue-steps"

# In pixels: of boxes, between them, around all.
BOX_WIDTH = 184
LINE_HEIGHT = 16
GAP_ACROSS, GAP_DOWN, MARGIN = 44, 14, 6
# What a line takes that passes by a layer.
PASSING_HEIGHT = 8
# Characters of a name that fit into a box.
NAME_CHARACTERS_MAX = 23

# A box of several has the colour of the first of these that one of them has.
URGENCY = (
    *("dead", "started", "expired", "cancelled", "skipped", "waiting", UNNEEDED),
    "succeeded",
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text in a box."""

    text: str
    y: int
    url: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the bar of a box: how many of its steps are in one state."""

    x: float
    y: int
    width: float
    css: str


@dataclass(frozen=True, slots=True)
class Box:
    """One step, or many."""

    x: int
    y: int
    height: int
    css: str
    url: str
    title: str
    name: str
    lines: list[Line]
    bar: list[Piece]

    width = BOX_WIDTH


@dataclass(frozen=True, slots=True)
class Graph:
    """A picture of all steps of a workflow."""

    width: int
    height: int
    boxes: list[Box]
    paths: list[str]
    # How many steps there are in each state.
    states: dict[str, int]
    told: str


def graph(found: Sequence[Alike], *, clock: float, here: int | None) -> Graph:
    """
    Return the picture of a workflow.

    Args:
        found: Its steps.
        clock: The database's, in seconds since 1970.
        here: A step that is pointed out.
    """
    shape = folded(found)
    heights = [_height(fold) for fold in shape.folds]
    places = _Places(shape, heights)
    boxes = [
        _box(fold, *places.at[number], heights[number], clock, here)
        for number, fold in enumerate(shape.folds)
    ]
    states: dict[str, int] = defaultdict(int)
    for fold in shape.folds:
        for state, count in fold.states.items():
            states[state] += count
    return Graph(
        width=places.width,
        height=places.height,
        boxes=boxes,
        paths=places.paths(),
        states={state: states[state] for state in sorted(states, key=_urgency)},
        told="; ".join(box.title for box in boxes[:20]),
    )


def state_in_rows(state: str) -> str:
    """Return the state that the rows of steps have which are shown in this one."""
    return StepState.WAITING if state == UNNEEDED else state


def _urgency(state: str) -> int:
    return URGENCY.index(state) if state in URGENCY else len(URGENCY)


def _height(fold: Fold) -> int:
    lines = 2 if fold.count == 1 else 2 + len(fold.states)
    return lines * LINE_HEIGHT + (14 if fold.count == 1 else 20)


def _box(
    fold: Fold, x: int, y: int, height: int, clock: float, here: int | None
) -> Box:
    states = sorted(fold.states, key=_urgency)
    name, took = _name(fold), _took(fold, clock)
    if fold.count == 1:
        said = [label_of(states[0])]
        query: dict[str, Any] = {"q": fold.ids[0]}
        title = name
        lines = [(" · ".join(filter(None, [*said, took])), _url(query))]
        told = lines[0][0]
    else:
        query = {"q": fold.name} if fold.name else {}
        title = f"{fold.count:,} \u00d7 {name}"
        lines = [
            (
                f"{fold.states[state]:,} {label_of(state)}",
                _url(query, state=state_in_rows(state)),
            )
            for state in states
        ]
        told = ", ".join(text for text, _ in lines)
        lines.append((took, _url(query)))
    if fold.kind in KINDS:
        title = f"{KINDS[fold.kind]}: {title}"
    css = [f"pgqueue-{states[0]}"]
    css += ["pgqueue-gather"] if not fold.has_task else []
    css += ["pgqueue-undo"] if fold.undoes is not None else []
    css += ["pgqueue-here"] if here in fold.ids else []
    top = y + 14 + LINE_HEIGHT
    return Box(
        x=x,
        y=y,
        height=height,
        css=" ".join(css),
        url=_url(query),
        title=f"{title}: {told}",
        name=_short(title, name),
        lines=[
            Line(text, top + number * LINE_HEIGHT, url)
            for number, (text, url) in enumerate(lines)
        ],
        bar=list(_bar(fold, states, x, y + height - 10)) if fold.count > 1 else [],
    )


def _name(fold: Fold) -> str:
    if not fold.has_task:
        return _("(gather)")
    return fold.name or _("(several names)")


def _short(title: str, name: str) -> str:
    """Return *title*, with the end of the *name* in it where that is too long."""
    if len(title) > NAME_CHARACTERS_MAX:
        title = title.replace(name, name.rpartition(".")[2] or name)
    if len(title) > NAME_CHARACTERS_MAX:
        title = f"{title[: NAME_CHARACTERS_MAX - 1]}…"
    return title


def _took(fold: Fold, clock: float) -> str:
    """Return how long it took, or for how long it has run."""
    if fold.started is None or not fold.has_task:
        return ""
    if fold.states["started"] or fold.finished is None:
        return human.age(clock - fold.started)
    return human.duration(fold.finished - fold.started)


def _bar(fold: Fold, states: Sequence[str], x: int, y: int) -> Iterator[Piece]:
    at = x + 10.0
    for state in reversed(states):
        width = (BOX_WIDTH - 20) * fold.states[state] / fold.count
        yield Piece(at, y, width, f"pgqueue-part-{state}")
        at += width


def _url(query: dict[str, Any], **more: str) -> str:
    return f"?{urlencode({**query, **more})}#{TABLE}"


class _Places:
    """Where boxes stand, and the ways of the lines between them."""

    def __init__(self, shape: Folded, heights: Sequence[int]) -> None:
        self._layers = [fold.layer for fold in shape.folds]
        self._heights = list(heights)
        self._first = [fold.ids[0] for fold in shape.folds]
        of = {step: n for n, fold in enumerate(shape.folds) for step in fold.ids}
        # Boxes that undo another one stand below it.
        self._undoes = {
            number: of[fold.undoes]
            for number, fold in enumerate(shape.folds)
            if fold.undoes in of
        }
        # A line that leads further than to the next layer passes by those between: at
        # one place for all lines from the same box.
        self._passing: dict[tuple[int, int], int] = {}
        self._links: set[tuple[int, int]] = set()
        for start, end in shape.lines:
            before = start
            for layer in range(self._layers[start] + 1, self._layers[end]):
                before = self._pass(start, layer, before)
            self._links.add((before, end))
        self.boxes = len(shape.folds)
        self.width, self.height = 0, 0
        self.at = self._stand()

    def _pass(self, start: int, layer: int, before: int) -> int:
        place = self._passing.get((start, layer))
        if place is None:
            place = self._passing[start, layer] = len(self._layers)
            self._layers.append(layer)
            self._heights.append(PASSING_HEIGHT)
            self._first.append(self._first[start])
        self._links.add((before, place))
        return place

    def _stand(self) -> list[tuple[int, int]]:
        """Return the left upper corner of each; fewer lines cross by this order."""
        befores: dict[int, list[int]] = defaultdict(list)
        for start, end in self._links:
            befores[end].append(start)
        columns: dict[int, list[int]] = defaultdict(list)
        for place, layer in enumerate(self._layers):
            columns[layer].append(place)
        tall = {layer: self._tall(of) for layer, of in columns.items()}
        most = max(tall.values(), default=0)
        at = [(0, 0)] * len(self._layers)
        for layer, column in sorted(columns.items()):

            def wanted(place: int) -> tuple[float, int, int]:
                if place in self._undoes:
                    return (*wanted(self._undoes[place])[:2], place + 1)
                ys = [self._middle(at, each) for each in befores[place]]
                return sum(ys) / len(ys) if ys else 0.0, self._first[place], 0

            y = MARGIN + (most - tall[layer]) // 2
            for place in sorted(column, key=wanted):
                at[place] = MARGIN + layer * (BOX_WIDTH + GAP_ACROSS), y
                y += self._heights[place] + GAP_DOWN
        last = max(columns, default=0)
        self.width = last * (BOX_WIDTH + GAP_ACROSS) + BOX_WIDTH + 2 * MARGIN
        self.height = 2 * MARGIN + max(
            (y + self._heights[place] - MARGIN for place, (_x, y) in enumerate(at)),
            default=0,
        )
        return at

    def _tall(self, column: Sequence[int]) -> int:
        """Return the height of a column without what hangs below its boxes."""
        steps = [place for place in column if place not in self._undoes]
        heights = sum(self._heights[place] for place in steps)
        return heights + GAP_DOWN * max(len(steps) - 1, 0)

    def _middle(self, at: Sequence[tuple[int, int]], place: int) -> int:
        return at[place][1] + self._heights[place] // 2

    def paths(self) -> list[str]:
        """Return the lines, each as the ways between layers."""
        across = [self._path(start, end) for start, end in sorted(self._links)]
        return [*across, *(self._down(*pair) for pair in self._undoes.items())]

    def _down(self, undo: int, step: int) -> str:
        x, y = self.at[step]
        x += BOX_WIDTH // 2
        return f"M{x} {y + self._heights[step]}V{self.at[undo][1]}"

    def _path(self, start: int, end: int) -> str:
        x, y = self.at[start][0] + BOX_WIDTH, self._middle(self.at, start)
        to_x, to_y = self.at[end][0], self._middle(self.at, end)
        half = (to_x - x) // 2
        way = f"M{x} {y}C{x + half} {y} {to_x - half} {to_y} {to_x} {to_y}"
        return way if end < self.boxes else f"{way}h{BOX_WIDTH}"
