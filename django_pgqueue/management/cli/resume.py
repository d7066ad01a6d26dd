"""pgqueue resume: a paused queue is worked on again."""

from __future__ import annotations

from typing import Any

from django_pgqueue.management.cli.acting import suggest
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
    status = out.answer(
        {"queue": name, "resumed": was_paused},
        was_paused,
        f"Queue {name} goes on.",
        f"Queue {name} was not paused.",
    )
    if not was_paused and not out.as_json:
        suggest(Filters(queue=name), out)
    return status
