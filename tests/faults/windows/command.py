"""Command: measure cases one after the other, and tell what came of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.faults.broken import make_changed
from tests.faults.build import make_build
from tests.faults.server import make_template
from tests.faults.windows.broken import BUILDS
from tests.faults.windows.measure import AWAY, AWAY_SHARE, CASES, Case, Window, measure


class Bench:
    """A build of a package and a cluster with its tables, to measure on."""

    def __init__(self, package: Path, folder: Path, seed: int) -> None:
        self._folder = folder
        self._seed = seed
        self._build = make_build(package, folder / "build")
        self._template = make_template(self._build, folder)
        self._numbers = itertools.count(1)

    def measure(self, case: Case, kills: int) -> Window:
        """Measure a case."""
        return self._measure(self._build, case, kills)

    def measure_broken(self, name: str, kills: int) -> Window:
        """Measure the case of a broken build."""
        build = make_changed(
            name,
            BUILDS[name].edits,
            self._build / "django_pgqueue",
            self._folder / f"build-{name}",
        )
        return self._measure(build, BUILDS[name].case, kills)

    def _measure(self, build: Path, case: Case, kills: int) -> Window:
        return measure(
            case,
            kills=kills,
            seed=self._seed,
            build=build,
            folder=self._folder / f"window-{next(self._numbers)}",
            template=self._template,
        )


def cases(words: list[str], kills: int) -> Iterator[tuple[Case, int]]:
    """Yield the cases that begin with one of *words*, and how often each is killed."""
    for case in (*CASES, *AWAY):
        said = f"{str(case).replace(',', '')} "
        if not words or any(said.startswith(f"{word} ") for word in words):
            share = 1.0 if case.hole is None else AWAY_SHARE
            yield case, math.ceil(kills * share)


def line(window: Window) -> str:
    """Return the figures of a window in one line."""
    told = window.told()
    return (
        f"{told['case']:<48} {told['kills']:>4} kills: repeats "
        f"median {told['median']:g}, p95 {told['p95']}, max {told['max']} "
        f"({told['returned_max']} of them had returned), bound {told['bound']}; "
        f"{told['jobs']} jobs, {told['seconds']:.0f} s"
    )


def run(
    package: Path,
    folder: Path,
    *,
    seed: int,
    kills: int,
    words: list[str],
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Measure what was asked for; return the figures of each."""
    bench = Bench(package, folder, seed)
    found = []
    for case, count in cases(words, kills):
        window = bench.measure(case, count)
        say(line(window))
        for kind, text in window.violations.items():
            say(f"    {kind}: {text}")
        found.append(window.told())
    return found
