"""
Workflow folds: which steps of a workflow are drawn as one box.

Steps are alike when they have one name, and come after alike steps and before alike
ones: so are the members of a group, and the second steps of a group of chains. Many of
them are one box. What is still too much for a picture is folded by its names, and a
chain that is too long in pieces, so that 50,000 steps are at most some hundred boxes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from django_pgqueue.operators.workflows import CALLBACKS
from django_pgqueue.queues.workflows import Alike

# Up to so many alike steps are drawn one by one.
MEMBERS_DRAWN_MAX = 6
# Boxes that follow one another, and that stand side by side.
LAYERS_MAX = 40
BOXES_PER_LAYER_MAX = 14


@dataclass(slots=True)
class Fold:
    """Steps that are one box."""

    layer: int
    name: str  # "": of several names.
    kind: str
    has_task: bool
    # A step that it undoes.
    undoes: int | None = None
    ids: list[int] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    # The first start and the last end, in seconds since 1970; None: none.
    started: float | None = None
    finished: float | None = None

    @property
    def count(self) -> int:
        """How many steps it stands for."""
        return len(self.ids)

    def add(self, step: int, of: Alike) -> None:
        """Add one of the steps that are *of* these."""
        self.ids.append(step)
        self.states[of.state] += 1
        starts = [each for each in (self.started, of.started) if each is not None]
        ends = [each for each in (self.finished, of.finished) if each is not None]
        self.started, self.finished = min(starts, default=None), max(ends, default=None)


@dataclass(frozen=True, slots=True)
class Folded:
    """All of a workflow as a few boxes, and which leads to which, by their places."""

    folds: list[Fold]
    lines: list[tuple[int, int]]


Key = tuple[Hashable, ...]


def folded(found: Sequence[Alike]) -> Folded:
    """Return the steps of a workflow as boxes."""
    steps = {step: alike for alike in found for step in alike.ids}
    after = _after(found, steps)
    order = _in_order(steps, after)
    depths = _depths(order, steps, after)
    # A chain that is too long is folded in pieces: so many steps after one another.
    piece = -(-(max(depths.values(), default=0) + 1) // LAYERS_MAX)
    layers = {step: depth // piece for step, depth in depths.items()}
    alike = _alike(order, steps, after) if piece == 1 else {}
    keys = _keys(steps, layers, alike)

    folds: dict[Key, Fold] = {}
    for step in sorted(steps):
        of, key = steps[step], keys[step]
        if key not in folds:
            name = "" if key[1] is None else of.name
            undoes = of.compensates
            folds[key] = Fold(layers[step], name, of.kind, of.has_task, undoes)
        folds[key].add(step, of)
    place = {key: number for number, key in enumerate(folds)}
    lines = {
        (place[keys[before]], place[keys[step]])
        for step, befores in after.items()
        for before in befores
        if layers[before] != layers[step]
    }
    return Folded(list(folds.values()), sorted(lines))


def _after(found: Iterable[Alike], steps: dict[int, Alike]) -> dict[int, list[int]]:
    """Return what each step comes after."""
    after: dict[int, list[int]] = defaultdict(list)
    for of in found:
        for step in of.next:
            if step in steps:
                after[step] += of.ids
    return after


def _in_order(steps: dict[int, Alike], after: dict[int, list[int]]) -> list[int]:
    """Return the steps, each behind those that it comes after."""
    waits = {step: len(after.get(step, ())) for step in sorted(steps)}
    order = [step for step, count in waits.items() if not count]
    for step in order:
        for onward in steps[step].next:
            if onward in waits:
                waits[onward] -= 1
                if not waits[onward]:
                    order.append(onward)
    return order


def _depths(
    order: list[int], steps: dict[int, Alike], after: dict[int, list[int]]
) -> dict[int, int]:
    """Return how far from the beginning each step is, by the longest way."""
    # A circle, which nothing of ours stores, is drawn as if it came first.
    depths = dict.fromkeys(steps, 0)
    for step in order:
        depths[step] = max(
            (depths[each] + 1 for each in after.get(step, ())), default=0
        )
    last = max(depths.values(), default=0)
    for step, of in steps.items():
        if of.kind in CALLBACKS:
            depths[step] = last + 1
        elif of.compensates in depths:
            depths[step] = depths[of.compensates]
    return depths


def _alike(
    order: list[int], steps: dict[int, Alike], after: dict[int, list[int]]
) -> dict[int, int]:
    """Return a number for each step; it is the same for those that are alike."""
    before: dict[int, int] = {}
    known: dict[Hashable, int] = {}
    for step in order:
        of = steps[step]
        befores = frozenset(before[each] for each in after.get(step, ()))
        seen = (of.name, of.kind, of.has_task, befores)
        before[step] = known.setdefault(seen, len(known))
    alike: dict[int, int] = {}
    known = {}
    for step in reversed(order):
        onward = frozenset(alike[each] for each in steps[step].next if each in alike)
        alike[step] = known.setdefault((before[step], onward), len(known))
    for step, of in steps.items():
        if of.compensates is not None:
            undoes = ("undoes", of.name, alike.get(of.compensates))
            alike[step] = known.setdefault(undoes, len(known))
    return alike


def _keys(
    steps: dict[int, Alike], layers: dict[int, int], alike: dict[int, int]
) -> dict[int, Key]:
    """Return by what each step is folded: those with the same key are one box."""
    count = Counter(alike.values())
    keys: dict[int, Key] = {}
    for step, of in steps.items():
        keys[step] = (layers[step], of.name, of.kind)
        if (number := alike.get(step)) is not None:
            is_alone = count[number] <= MEMBERS_DRAWN_MAX
            keys[step] += (number, step) if is_alone else (number,)
    _fold_crowded(keys, lambda key: key[:3])
    _fold_crowded(keys, lambda key: (key[0], None))
    return keys


def _fold_crowded(keys: dict[int, Key], by: Callable[[Key], Key]) -> None:
    """Where too many boxes stand side by side, fold them *by* less."""
    boxes: dict[Hashable, set[Key]] = defaultdict(set)
    for key in keys.values():
        boxes[key[0]].add(key)
    crowded = {layer for layer, of in boxes.items() if len(of) > BOXES_PER_LAYER_MAX}
    for step, key in keys.items():
        if key[0] in crowded:
            keys[step] = by(key)
