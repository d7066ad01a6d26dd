"""The command: python -m tests.benchmarks. See the package's own text."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.management.bench import signals_as_interrupts
from tests.benchmarks import measure, page, peer_runs
from tests.benchmarks.processes import FailedError, say
from tests.benchmarks.scratch import scratch

EXIT_FAILED, EXIT_INTERRUPTED = 2, 130


def main(arguments: Sequence[str]) -> int:
    """
    Measure this queue, or with "peers" others beside it.

    Returns:
        0; 1 if a turn of a peer was invalid; 2 if nothing can be measured; 130
        interrupted.
    """
    try:
        with signals_as_interrupts():
            if arguments[:1] == ["peers"]:
                return peer_runs.main(arguments[1:])
            return _measure(arguments)
    except (FailedError, PgQueueError, OSError) as error:
        say(str(error))
        return EXIT_FAILED
    except KeyboardInterrupt:
        say("Interrupted; the databases were dropped.")
        return EXIT_INTERRUPTED


def _measure(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description="Measure this queue beside plain psycopg, or beside itself. "
        "Progress goes to standard error. 'peers --help': other products.",
    )
    add = parser.add_argument
    add("measures", nargs="+", metavar="MEASURE", help="names, 'drain*', or all")
    add("--runs", type=int, default=5, help="pairs of each measure (default 5)")
    add("--jobs", type=int, help="in each run (default: as the measure says)")
    add("--rows", type=int, default=1_000_000, help="of each backlog")
    add("--seconds", type=float, default=20.0, help="of each run of idle")
    add("--json", action="store_true", help="print one JSON object, not a table")
    options = parser.parse_args(arguments)
    with scratch(options.rows, options.seconds, say) as place:
        # Django is set up now, which their tasks need.
        from tests.benchmarks.measures import (  # noqa: F401 - they add theirs
            crowded,
            jobs,
            latencies,
            messages,
            standing,
        )

        try:
            chosen = [
                name for each in options.measures for name in measure.chosen(each)
            ]
        except ValueError as error:
            parser.error(str(error))
        measured = {
            name: measure.run(place, measure.MEASURES[name], options.runs, options.jobs)
            for name in dict.fromkeys(chosen)
        }
    print(json.dumps(measured) if options.json else page.own(measured))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
