"""pgqueue_pipeline stop: ask a live run to end."""

from __future__ import annotations

import time
from typing import Any

from django.core.management import CommandError

from django_pgqueue.management.cli.output import (
    EXIT_DONE,
    EXIT_NOTHING,
    EXIT_USAGE,
    Output,
)
from django_pgqueue.management.cli.words import whole_number
from django_pgqueue.management.pipeline.plan import this_account
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.tasks import database

HELP = "Stop a live run of a pipeline job."

# A run hears of it within two seconds, and Spark ends within some more.
WAIT_SECONDS = 60.0
LOOK_SECONDS = 0.5


def add_arguments(parser: Any) -> None:
    """Declare whose run is stopped."""
    parser.add_argument("job", metavar="JOB", help="A pipeline job.")
    parser.add_argument(
        "--run",
        type=whole_number(2**63 - 1),
        metavar="ID",
        help="This one, where several are live.",
    )
    parser.add_argument(
        "--no-wait", action="store_true", help="Ask, and do not wait for its end."
    )


def run(options: dict[str, Any], out: Output) -> int:
    """Ask, and wait; status 1 if no run is live, or it has not ended."""
    job = options["job"]
    with database.cursor() as cursor:
        asked = pipelines.request_stop(
            cursor, job, by=this_account(), run=options["run"] or _only(cursor, job)
        )
        state = None
        if asked is not None:
            run_id, is_dead = asked
            state = "lost" if is_dead else "running"
            until = time.monotonic() + WAIT_SECONDS
            while (
                state == "running"
                and not options["no_wait"]
                and time.monotonic() < until
            ):
                time.sleep(LOOK_SECONDS)
                state = pipelines.state_of(cursor, run_id)
    if out.as_json:
        out.json({"job": job, "run": asked and asked[0], "state": state})
    elif asked is None:
        which = f"Run {options['run']}" if options["run"] else "No run"
        out.line(f"{which} of {job} is {'not ' if options['run'] else ''}live.")
    elif state == "running":
        out.line(f"Run {asked[0]} of {job} was asked to stop.")
    else:
        out.line(f"Run {asked[0]} of {job}: {state}.")
    if asked is None:
        return EXIT_NOTHING
    return EXIT_DONE if state != "running" or options["no_wait"] else EXIT_NOTHING


def _only(cursor: Any, job: str) -> int | None:
    """Return the live run of *job*; None: there is none. Of several, one is asked."""
    live = pipelines.live_runs(cursor, job)
    if len(live) > 1:
        raise CommandError(
            f"{len(live)} runs of {job} are live: {', '.join(map(str, live))}. Say "
            f"which is to stop, such as --run {live[0]}.",
            returncode=EXIT_USAGE,
        )
    return live[0] if live else None
