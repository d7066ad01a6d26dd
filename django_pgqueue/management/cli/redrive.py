"""pgqueue redrive: dead letters go back to their queue, or into another."""

from __future__ import annotations

from functools import partial
from typing import Any

from django_pgqueue.management.cli.acting import Verb, act, add_selection, answer
from django_pgqueue.management.cli.output import Output
from django_pgqueue.management.cli.rows import dead
from django_pgqueue.management.cli.words import (
    add_filters,
    add_force,
    check_is_known,
    queue_name,
)
from django_pgqueue.tasks import operate

HELP = "Send dead letters back to a queue, with the same id, from attempt 1 on."


def add_arguments(parser: Any) -> None:
    """Declare which dead letters, and where they go."""
    add_selection(parser)
    add_filters(parser, "queue", "task", "tag", "reason")
    parser.add_argument(
        "--to",
        type=queue_name,
        metavar="QUEUE",
        help="Into this queue (default: the one that each came from).",
    )
    add_force(parser)


def run(options: dict[str, Any], out: Output) -> int:
    """Redrive."""
    check_is_known(options["to"], options)
    verb = Verb("redrive", "redriven", partial(operate.redrive, queue=options["to"]))
    return answer(verb, act(verb, dead(), options, out), options, out)
