"""Progress, on standard error: a bar of rich on a terminal, else a line per pair."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from django_pgqueue.management.bench.measure import Pairs

try:
    import rich.console
    import rich.progress
except ImportError:  # The extra [cli] is not installed.
    HAS_RICH = False
else:
    HAS_RICH = True

Tell = Callable[[Pairs], None]


@contextlib.contextmanager
def progress(pairs_count: int, runs: int) -> Iterator[Tell]:
    """
    Yield what is to be called after each pair.

    Args:
        pairs_count: Pairs of all measures together.
        runs: Pairs of each measure.
    """
    if HAS_RICH and sys.stderr.isatty():
        with _bar(pairs_count, runs) as tell:
            yield tell
    else:
        yield lambda pairs: _say(_line(pairs, runs))


@contextlib.contextmanager
def _bar(pairs_count: int, runs: int) -> Iterator[Tell]:
    columns: tuple[Any, ...] = (
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TextColumn("{task.description}"),
    )
    console = rich.console.Console(stderr=True)
    with rich.progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("warming up", total=pairs_count)
        yield lambda pairs: bar.update(task, advance=1, description=_line(pairs, runs))


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _line(pairs: Pairs, runs: int) -> str:
    ours, plain = median(pairs.product[-1]), median(pairs.yardstick[-1])
    return (
        f"{pairs.measure.name} {len(pairs.product)}/{runs}: product {shown(ours)}, "
        f"yardstick {shown(plain)} {pairs.measure.unit}"
    )


def shown(value: float) -> str:
    """Return a figure for people: no more digits than it can mean."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
