"""Pull queue: the one that send, receive and their like mean."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.core.management.base import CommandError

from django_pgqueue.exceptions import did_you_mean
from django_pgqueue.management.cli.words import length, queue_name
from django_pgqueue.operators.human import shown
from django_pgqueue.pull.known import known_names, known_queue
from django_pgqueue.pull.queue import PullQueue


def add_queue(parser: Any) -> None:
    """Declare the queue."""
    parser.add_argument("queue", type=queue_name, metavar="QUEUE")


def add_length(parser: Any, name: str, what: str, **options: Any) -> None:
    """Declare *name*, a length of time."""
    parser.add_argument(
        name,
        type=partial(length, name=f"the {name.removeprefix('--')}"),
        metavar="LENGTH",
        help=f"{what}: 500ms, 90s, 2h.",
        **options,
    )


def the_queue(options: dict[str, Any]) -> PullQueue:
    """
    Return the queue that the command line names.

    Raises:
        CommandError: No pull queue is called so; status 1.
    """
    found = known_queue(options["queue"])
    if found is None:
        name = options["queue"]
        near = did_you_mean(name, known_names())
        raise CommandError(
            f"No pull queue is called {name!r}.{shown(near)} A new one is made "
            f"by queue({name!r}) in Python, or SELECT pgqueue_declare_queue({name!r})."
        )
    return found
