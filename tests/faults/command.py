"""Command: runs started as processes of their own, some at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.broken import BUILDS, make_broken
from tests.faults.build import REPOSITORY, make_build
from tests.faults.server import make_template
from tests.faults.windows.measure import Bench, Case

# The next seed is tried when no fault of a run has bitten a broken build.
TRIES = 3
SEEDS_APART = 1_000

RUN_SECONDS_MAX = 1_800


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be run."""

    seed: int
    share: float
    package: Path
    folder: Path  # For everything that the runs write.
    say: Callable[[str], None] = print


class Runs:
    """Runs of rows and of broken builds, *lanes* of them at a time."""

    def __init__(self, order: Order, lanes: int) -> None:
        self._order = order
        self._pool = ThreadPoolExecutor(lanes)
        self._running: set[subprocess.Popen[str]] = set()
        self._build = make_build(order.package, order.folder / "build")
        self._template = make_template(self._build, order.folder)

    def row(self, name: str) -> Future[dict[str, Any]]:
        """Run a row as soon as there is a lane; the answer is its report."""
        return self._pool.submit(self._run, name, self._build, self._order.seed, name)

    def broken(self, name: str) -> Future[dict[str, Any]]:
        """
        Run a broken build until it is found out; the answer is the last report.

        Its ``found_by`` are the violations that gave it away; empty: it got through.
        """
        return self._pool.submit(self._run_broken, name)

    def windows(self, strength: str, kills: int) -> Future[dict[str, Any]]:
        """Measure what killed processes repeat; the answer is the figures."""
        order = self._order
        bench = Bench(self._build, self._template, order.folder, order.seed)
        case = Case(strength=strength, threads=16)
        return self._pool.submit(bench.measure, case, kills)

    def end(self) -> None:
        """Start nothing more, and end what still runs, with its server and workers."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in list(self._running):
            process.terminate()
        self._pool.shutdown()

    def _run_broken(self, name: str) -> dict[str, Any]:
        order, broken = self._order, BUILDS[name]
        # Of the copy, whose tables the template has.
        package = self._build / "django_pgqueue"
        build = make_broken(name, package, order.folder / f"build-{name}")
        report: dict[str, Any] = {}
        for n in range(TRIES):
            seed = order.seed + n * SEEDS_APART
            report = self._run(broken.row, build, seed, f"{name}-{n}", quiet=True)
            report["build"] = name
            found = broken.found_by & set(report.get("violations", ()))
            report["found_by"] = sorted(found)
            if found:
                break
        by = ", ".join(report["found_by"]) or "NOTHING"
        order.say(f"{name:<18} {broken.title}: found out by {by}")
        if "broken" in report:
            order.say(report["broken"])
        return report

    def _run(
        self, row: str, build: Path, seed: int, label: str, *, quiet: bool = False
    ) -> dict[str, Any]:
        folder = self._order.folder / label
        answer = folder.with_suffix(".json")
        share = 1.0 if quiet else self._order.share
        said = self._start(
            *(row, str(seed), str(share), str(build)),
            *(str(folder), str(self._template), str(answer)),
        )
        if not quiet:
            self._order.say(said.rstrip())
        if not answer.exists():
            return {
                "row": row,
                "seed": seed,
                "valid": False,
                "broken": said,
            }
        report: dict[str, Any] = json.loads(answer.read_text())
        return report

    def _start(self, *arguments: str) -> str:
        """Run tests.faults.one to its end; return what it printed."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.one", *arguments],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._running.add(process)
        try:
            said, _ = process.communicate(timeout=RUN_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.terminate()  # It ends its server and workers first.
            said, _ = process.communicate()
            said += f"\nIt had not ended after {RUN_SECONDS_MAX} s."
        finally:
            self._running.discard(process)
        return said


@contextmanager
def runs(order: Order, lanes: int) -> Iterator[Runs]:
    """Give what runs, and end it."""
    started = Runs(order, lanes)
    try:
        yield started
    finally:
        started.end()
