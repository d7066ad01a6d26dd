"""The command: python -m tests.faults. See the package's own text."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.faults.broken import BUILDS
from tests.faults.build import REPOSITORY
from tests.faults.command import Order, runs
from tests.faults.rows import ROWS
from tests.faults.windows import measure as windows

say = partial(print, flush=True)


def main() -> int:
    """Run what was asked for; 0 when every verdict is as it must be."""
    options = read_options()
    folder = Path(tempfile.mkdtemp(prefix="pgqueue-faults-"))
    if options.windows:
        return measure_windows(options, folder)
    order = Order(
        seed=options.seed,
        share=options.share,
        package=options.package,
        folder=folder,
        say=say,
    )
    say(f"seed {options.seed}, share {options.share:g} of full size")
    try:
        with runs(order, options.lanes) as started:
            rows = [started.row(name) for name in options.rows]
            broken = [started.broken(name) for name in options.broken]
            reports = [run.result() for run in rows]
            found_out = [run.result() for run in broken]
    finally:
        if options.keep:
            say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if options.report:
        told = json.dumps({"rows": reports, "broken": found_out}, indent=1)
        options.report.write_text(told)
    valid = [report["valid"] for report in reports]
    found = [bool(report["found_by"]) for report in found_out]
    say(
        f"{sum(valid)} of {len(valid)} rows valid, "
        f"{sum(found)} of {len(found)} broken builds found out"
    )
    return 0 if all(valid + found) else 1


def measure_windows(options: argparse.Namespace, folder: Path) -> int:
    """Measure how much a killed process repeats; 0 when nothing is beyond its bound."""
    say(f"seed {options.seed}")
    try:
        found = windows.run(
            options.package,
            folder,
            seed=options.seed,
            kills=options.kills,
            words=options.cases,
            say=say,
        )
    finally:
        if options.keep:
            say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if options.report:
        options.report.write_text(json.dumps({"windows": found}, indent=1))
    return 1 if any(told["violations"] for told in found) else 0


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    add = parser.add_argument
    add("--row", action="append", choices=sorted(ROWS), dest="rows")
    add("--broken", action="append", choices=["all", *BUILDS], default=None)
    add("--seed", type=int, default=random.randrange(10_000))
    add("--share", type=float, default=1.0, help="of the full size")
    add("--tenth", action="store_const", const=0.1, dest="share", help="--share 0.1")
    add("--lanes", type=int, default=1, help="runs at a time (default 1)")
    add("--report", type=Path, help="write JSON there")
    add("--keep", action="store_true", help="keep ledgers and logs")
    add("--windows", action="store_true", help="measure what a kill -9 repeats")
    add("--kills", type=int, default=200, help="of each window (default 200)")
    add(
        *("--case", "--cases"),
        action="append",
        default=[],
        dest="cases",
        metavar="WORDS",
        help='windows that begin so: "batched 16", "atomic"',
    )
    add("--package", type=Path, default=REPOSITORY / "django_pgqueue")
    options = parser.parse_args()
    if options.rows is None and options.broken is None:
        options.rows, options.broken = list(ROWS), ["all"]
    options.rows = options.rows or []
    options.broken = options.broken or []
    if "all" in options.broken:
        options.broken = list(BUILDS)
    return options


if __name__ == "__main__":
    sys.exit(main())
