"""The command: python -m tests.log.soak. See the package's own text."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.faults.build import REPOSITORY
from tests.faults.server import Server, make_template
from tests.log.soak.broken import BROKEN, STRETCHED
from tests.log.soak.run import Soak, run

MESSAGES = 100_000
SLOW_SECONDS = 2.0

say = partial(print, flush=True)


def main() -> int:
    """Run what was asked for; 0 when the verdict is as it must be."""
    options = read_options()
    change = {"stretched": STRETCHED, **BROKEN}.get(options.change)
    soak = Soak(
        messages=options.messages,
        seed=options.seed,
        slow_seconds=SLOW_SECONDS,
        start=max(options.start, change.start if change else 0),
        change=change,
    )
    say(f"seed {soak.seed}, {soak.messages:,} messages, ids after {soak.start:,}")
    with tempfile.TemporaryDirectory(prefix="pgqueue-soak-") as folder:
        template = make_template(REPOSITORY, Path(folder))
        with Server(template) as server:
            began = time.monotonic()
            verdict = run(soak, server.url)
            seconds = time.monotonic() - began
    say(
        f"{verdict.messages:,} messages in {seconds:.0f} s; readers without a horizon "
        f"skipped {verdict.skipped_by_naive:,}, those with it {len(verdict.skipped)}"
    )
    for name in verdict.found:
        say(f"{name}: {len(getattr(verdict, name))}, {getattr(verdict, name)[:10]}")
    is_broken = change is not None and change is not STRETCHED
    has_bitten = verdict.skipped_by_naive > 0
    return 0 if has_bitten and is_broken == bool(verdict.found) else 1


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.log.soak")
    add = parser.add_argument
    add("--messages", type=int, default=MESSAGES)
    add("--seed", type=int, default=random.randrange(10_000))
    add("--start", type=int, default=0, help="the highest id before the first one")
    add("--broken", choices=["stretched", *BROKEN], dest="change")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
