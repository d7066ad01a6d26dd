"""pgqueue pause: workers leave the jobs of a queue alone."""

from __future__ import annotations

from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.management.cli.acting import operator_name
from django_pgqueue.management.cli.output import Output
from django_pgqueue.management.cli.text import by_whom
from django_pgqueue.management.cli.words import (
    add_force,
    add_reason,
    check_is_known,
    queue_name,
)
from django_pgqueue.models import Queue
from django_pgqueue.operators.human import duration
from django_pgqueue.tasks import operate

HELP = "Stop claims from a queue; what runs, runs on, and enqueues go on."


def add_arguments(parser: Any) -> None:
    """Declare which queue, and why."""
    parser.add_argument("queue", type=queue_name, metavar="QUEUE")
    add_reason(parser, "queue")
    add_force(parser)


def run(options: dict[str, Any], out: Output) -> int:
    """Pause."""
    name = options["queue"]
    check_is_known(name, options)
    was_new = operate.pause(name, by=operator_name(), reason=options["reason"])
    # A worker reads the list of queues as often as it polls.
    poll = duration(get_settings().poll_interval_seconds)
    row = Queue.objects.using(get_settings().database).get(name=name)
    return out.answer(
        {"queue": name, "paused": was_new},
        was_new,
        f"Queue {name} is paused; workers notice within {poll}.",
        f"Queue {name} was paused already{by_whom(row)}; that stays.",
    )
