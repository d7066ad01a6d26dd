"""One run, in a process of its own: python -m tests.faults.one ROW SEED SHARE …."""

from __future__ import annotations

import json
import signal
import sys
import traceback
from pathlib import Path

from tests.faults import report
from tests.faults.rows import Run
from tests.faults.run import perform


def main(
    name: str, seed: str, share: str, build: str, folder: str, template: str, to: str
) -> int:
    """Perform a run, print its line, and write its report to *to*."""
    # As Ctrl+C: what was started is ended on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = Run.of(name, seed=int(seed), share=float(share))
    Path(folder).mkdir()
    try:
        result = perform(
            run, build=Path(build), folder=Path(folder), template=Path(template)
        )
    except Exception:
        # The run itself broke, which is told apart from a broken promise.
        print(f"{name:<3} BROKEN  seed={seed}", traceback.format_exc(), sep="\n")  # noqa: T201
        return 2
    found = report.of(result)
    print(report.line(found), *report.problems(found), sep="\n")  # noqa: T201
    Path(to).write_text(json.dumps(found, indent=1, default=str))
    return 0 if found["valid"] else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
