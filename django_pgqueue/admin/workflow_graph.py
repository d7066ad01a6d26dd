"""
Workflow graph: the steps of a workflow as shapes of SVG, drawn by graph.html.

Each box is to the right of all boxes that it comes after; there is no script and no
style in the page. A box links to its step in the table below, which links to the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.utils.http import urlencode
from django.utils.translation import gettext as _

from django_pgqueue.operators import human
from django_pgqueue.operators.workflows import CALLBACKS, KINDS, label_of
from django_pgqueue.queues.workflows import Alike

# The fragment of the table of steps.
TABLE = "pgqueue-steps"

# Workflows with more steps show a table of counts instead.
STEPS_DRAWN_MAX = 50

# In pixels: of boxes, between them, around all.
BOX_WIDTH, BOX_HEIGHT = 184, 46
GAP_ACROSS, GAP_DOWN, MARGIN = 44, 14, 6
# The height of a line that passes by a layer.
PASSING_HEIGHT = 8
# Characters of a name that fit into a box.
NAME_CHARACTERS_MAX = 23


@dataclass(frozen=True, slots=True)
class Box:
    """One step."""

    x: int
    y: int
    css: str
    url: str
    title: str
    name: str
    text: str

    width = BOX_WIDTH
    height = BOX_HEIGHT


@dataclass(frozen=True, slots=True)
class Graph:
    """A picture of all steps of a workflow."""

    width: int
    height: int
    boxes: list[Box]
    paths: list[str]

    @property
    def description(self) -> str:
        """The first steps in words, for those who do not see the picture."""
        return "; ".join(box.title for box in self.boxes[:20])


def graph(shape: Iterable[Alike], *, clock: float, here: int | None) -> Graph:
    """
    Return the picture of a workflow.

    Args:
        shape: Its steps; those that are alike share a row.
        clock: The database's, in seconds since 1970.
        here: The id of a step to highlight.
    """
    steps = {step: row for row in shape for step in row.ids}
    layout = _Layout(dict(sorted(steps.items())))
    return Graph(
        width=layout.width,
        height=layout.height,
        boxes=[
            _box(step, row, *layout.corners[step], clock, here)
            for step, row in layout.steps.items()
        ],
        paths=layout.paths(),
    )


def _box(step: int, row: Alike, x: int, y: int, clock: float, here: int | None) -> Box:
    name = row.name if row.has_task else _("(gather)")
    title = f"{KINDS[row.kind]}: {name}" if row.kind in KINDS else name
    text = " · ".join(filter(None, [label_of(row.state), _took(row, clock)]))
    css = [f"pgqueue-{row.state}"]
    css += ["pgqueue-gather"] if not row.has_task else []
    css += ["pgqueue-undo"] if row.compensates is not None else []
    css += ["pgqueue-here"] if step == here else []
    return Box(
        x=x,
        y=y,
        css=" ".join(css),
        url=f"?{urlencode({'q': step})}#{TABLE}",
        title=f"{title}: {text}",
        name=_short(title, name),
        text=text,
    )


def _short(title: str, name: str) -> str:
    """Return *title*, with the end of the *name* in it where that is too long."""
    if len(title) > NAME_CHARACTERS_MAX:
        title = title.replace(name, name.rpartition(".")[2] or name)
    if len(title) > NAME_CHARACTERS_MAX:
        title = f"{title[: NAME_CHARACTERS_MAX - 1]}…"
    return title


def _took(row: Alike, clock: float) -> str:
    """Return how long a step took, or for how long it has run."""
    if row.started is None or not row.has_task:
        return ""
    if row.finished is None:
        return human.age(clock - row.started)
    return human.duration(row.finished - row.started)


class _Layout:
    """The places of boxes, and of the lines between them."""

    def __init__(self, steps: dict[int, Alike]) -> None:
        self.steps = steps
        self._after: dict[int, list[int]] = defaultdict(list)
        for step, row in steps.items():
            for onward in row.next:
                if onward in steps:
                    self._after[onward].append(step)
        # By box, and by the place of a line that passes a layer, below zero.
        self._layers = self._depths()
        # A line that leads further than to the next layer passes those between: at one
        # place for all lines from the same box.
        self._passing: dict[tuple[int, int], int] = {}
        self._links: set[tuple[int, int]] = set()
        depths = dict(self._layers)
        for end, befores in self._after.items():
            for start in befores:
                if depths[start] != depths[end]:
                    self._link(start, end, range(depths[start] + 1, depths[end]))
        self.width = self.height = 2 * MARGIN
        self.corners = self._place()

    def _depths(self) -> dict[int, int]:
        """Return how far from the beginning each step is, by the longest way."""
        waits = {step: len(self._after.get(step, ())) for step in self.steps}
        order = [step for step, count in waits.items() if not count]
        # A circle, which nothing of ours stores, is drawn as if it came first.
        depths = dict.fromkeys(self.steps, 0)
        for step in order:
            befores = self._after.get(step, ())
            depths[step] = max((depths[each] + 1 for each in befores), default=0)
            for onward in self.steps[step].next:
                if onward in waits:
                    waits[onward] -= 1
                    if not waits[onward]:
                        order.append(onward)
        last = max(depths.values(), default=0)
        for step, row in self.steps.items():
            if row.kind in CALLBACKS:
                depths[step] = last + 1
            elif row.compensates in depths:
                depths[step] = depths[row.compensates]
        return depths

    def _link(self, start: int, end: int, between: Iterable[int]) -> None:
        before = start
        for layer in between:
            place = self._passing.setdefault((start, layer), -1 - len(self._passing))
            self._layers[place] = layer
            self._links.add((before, place))
            before = place
        self._links.add((before, end))

    def _undoes(self, place: int) -> int | None:
        """Return the step that the box at *place* undoes and hangs below."""
        row = self.steps.get(place)
        found = None if row is None else row.compensates
        return found if found in self.steps else None

    @staticmethod
    def _tall(place: int) -> int:
        return BOX_HEIGHT if place >= 0 else PASSING_HEIGHT

    def _place(self) -> dict[int, tuple[int, int]]:
        """Return the upper left corner of each; this order makes fewer lines cross."""
        columns: dict[int, list[int]] = defaultdict(list)
        for place, layer in self._layers.items():
            columns[layer].append(place)
        befores: dict[int, list[int]] = defaultdict(list)
        for start, end in self._links:
            befores[end].append(start)
        tall = {layer: self._column_height(column) for layer, column in columns.items()}
        corners: dict[int, tuple[int, int]] = {}

        def order(place: int) -> tuple[float, int, int]:
            if (done := self._undoes(place)) is not None:
                return (*order(done)[:2], place + 1)
            ys = [corners[each][1] for each in befores[place] if each in corners]
            return sum(ys) / len(ys) if ys else 0.0, place, 0

        for layer, column in sorted(columns.items()):
            x = MARGIN + layer * (BOX_WIDTH + GAP_ACROSS)
            y = MARGIN + (max(tall.values()) - tall[layer]) // 2
            for place in sorted(column, key=order):
                corners[place] = x, y
                y += self._tall(place) + GAP_DOWN
            self.width = max(self.width, x + BOX_WIDTH + MARGIN)
            self.height = max(self.height, y - GAP_DOWN + MARGIN)
        return corners

    def _column_height(self, column: Sequence[int]) -> int:
        """Return the height of a column without what hangs below its boxes."""
        heights = [self._tall(each) for each in column if self._undoes(each) is None]
        return sum(heights) + GAP_DOWN * max(len(heights) - 1, 0)

    def paths(self) -> list[str]:
        """Return the lines, each as the ways between layers."""
        across = [self._path(start, end) for start, end in sorted(self._links)]
        pairs = [(place, self._undoes(place)) for place in self.steps]
        return across + [self._down(undo, step) for undo, step in pairs if step]

    def _down(self, undo: int, step: int) -> str:
        x, y = self.corners[step]
        return f"M{x + BOX_WIDTH // 2} {y + BOX_HEIGHT}V{self.corners[undo][1]}"

    def _path(self, start: int, end: int) -> str:
        x, y = self.corners[start]
        to_x, to_y = self.corners[end]
        x, y = x + BOX_WIDTH, y + self._tall(start) // 2
        to_y += self._tall(end) // 2
        half = (to_x - x) // 2
        way = f"M{x} {y}C{x + half} {y} {to_x - half} {to_y} {to_x} {to_y}"
        return way if end >= 0 else f"{way}h{BOX_WIDTH}"
