"""Progress, on standard error: a bar of rich on a terminal, else a line per pair."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from statistics import median
from typing import Any, Protocol

from django_pgqueue.management.bench.measure import Pairs

try:
    import rich.console
    import rich.progress
    import rich.table
except ImportError:  # The extra [cli] is not installed.
    HAS_RICH = False
else:
    HAS_RICH = True

BAR_CHARACTERS = 20


class Progress(Protocol):
    """Who is told what happens."""

    def say(self, text: str) -> None:
        """Show what takes a while now."""

    def tell(self, pairs: Pairs) -> None:
        """Show the figures of one more pair."""


@contextlib.contextmanager
def progress(pairs_count: int, runs: int) -> Iterator[Progress]:
    """
    Yield whom to tell.

    Args:
        pairs_count: Pairs of all measures together.
        runs: Pairs of each part of a measure.
    """
    if not (HAS_RICH and sys.stderr.isatty()):
        yield _Lines(runs)
        return
    columns: tuple[Any, ...] = (
        rich.progress.BarColumn(bar_width=BAR_CHARACTERS),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TextColumn(
            "{task.description}",
            markup=False,
            table_column=rich.table.Column(no_wrap=True, overflow="ellipsis"),
        ),
    )
    console = rich.console.Console(stderr=True)
    with rich.progress.Progress(*columns, console=console, transient=True) as bar:
        yield _Bar(bar, bar.add_task("", total=pairs_count), runs)


class _Lines:
    """A line for each pair, and for each wait."""

    def __init__(self, runs: int) -> None:
        self._runs = runs

    def say(self, text: str) -> None:
        self._write(f"{text} …")

    def tell(self, pairs: Pairs) -> None:
        self._write(f"{_label(pairs, self._runs)}: {_figures(pairs)}")

    def _write(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


class _Bar:
    """A bar, and the figures of the latest pair above it."""

    def __init__(self, bar: Any, task: Any, runs: int) -> None:
        self._bar = bar
        self._task = task
        self._runs = runs

    def say(self, text: str) -> None:
        self._bar.update(self._task, description=text)

    def tell(self, pairs: Pairs) -> None:
        label = _label(pairs, self._runs)
        self._bar.console.print(
            f"{label}: {_figures(pairs)}", markup=False, highlight=False
        )
        self._bar.update(self._task, advance=1, description=label)


def _label(pairs: Pairs, runs: int) -> str:
    name = " ".join(filter(None, (pairs.measure.name, pairs.part)))
    return f"{name} {len(pairs.pairs)}/{runs}"


def _figures(pairs: Pairs) -> str:
    measure, pair = pairs.measure, pairs.pairs[-1]
    ours, plain = median(pair.product.values), median(pair.yardstick.values)
    text = f"{shown(ours)} {measure.unit}"
    if measure.other_side:
        text += f", {measure.other_side} {shown(plain)}"
    return text


def shown(value: float) -> str:
    """Return a figure for people: no more digits than it can mean."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
