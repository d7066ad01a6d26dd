"""pgqueue resume: a paused queue is worked on again."""

from __future__ import annotations

from typing import Any

from django_pgqueue.management.cli.acting import EXIT_DONE, EXIT_NOTHING, suggest
from django_pgqueue.management.cli.output import Output
from django_pgqueue.management.cli.rows import Filters
from django_pgqueue.management.cli.words import queue_name
from django_pgqueue.tasks import operate

HELP = "End the pause of a queue."


def add_arguments(parser: Any) -> None:
    """Declare which queue."""
    parser.add_argument("queue", type=queue_name, metavar="QUEUE")


def run(options: dict[str, Any], out: Output) -> int:
    """Resume."""
    name = options["queue"]
    was_paused = operate.resume(name)
    if out.as_json:
        out.json({"queue": name, "resumed": was_paused})
    elif was_paused:
        out.line(f"Queue {name} goes on.")
    else:
        out.line(f"Queue {name} was not paused.")
        suggest(Filters(queue=name), out)
    return EXIT_DONE if was_paused else EXIT_NOTHING
