"""pgqueue limit: say how many jobs of a queue run at a time, and in a time."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import CommandError

from django_pgqueue.bounds import LANE_BURST_MAX
from django_pgqueue.exceptions import DeclarationError
from django_pgqueue.management.cli.output import EXIT_USAGE, Output
from django_pgqueue.management.cli.words import (
    DEFAULT,
    add_force,
    capacity,
    check_is_known,
    queue_name,
    whole_number,
)
from django_pgqueue.operators.human import count, shown
from django_pgqueue.operators.lanes import rate
from django_pgqueue.options.lanes import Rate
from django_pgqueue.pull.known import known_queue
from django_pgqueue.tasks import operate_queues as operate

HELP = (
    "Say how many jobs of a queue run at a time, and in a time, on all workers "
    "together, whatever the settings say."
)

# What was not said stays as it is.
UNSAID = object()


def add_arguments(parser: Any) -> None:
    """Declare the queue and its limits."""
    parser.add_argument("queue", type=queue_name, metavar="QUEUE")
    parser.add_argument(
        "--concurrency",
        type=capacity,
        default=UNSAID,
        metavar="JOBS",
        help="So many at a time, or default: what the settings say.",
    )
    parser.add_argument(
        "--rate",
        type=rate_text,
        default=UNSAID,
        metavar="RATE",
        help="So many in a time, such as 100/m, or default: what the settings say.",
    )
    parser.add_argument(
        "--burst",
        type=burst,
        metavar="JOBS",
        help="Of --rate, how many may start at once (default 1).",
    )
    add_force(parser)


def rate_text(text: str) -> str | None:
    """Read a rate; None: what the settings say."""
    if text == DEFAULT:
        return None
    try:
        Rate(text)
    except DeclarationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def burst(text: str) -> int:
    """Read how many may start at once."""
    return whole_number(text, LANE_BURST_MAX)


def run(options: dict[str, Any], out: Output) -> int:
    """Change what was said, and nothing else."""
    name, text, jobs = options["queue"], options["rate"], options["concurrency"]
    if options["burst"] is not None and not isinstance(text, str):
        raise CommandError("--burst needs a --rate beside it.", returncode=EXIT_USAGE)
    if text is UNSAID and jobs is UNSAID:
        raise CommandError("Say --concurrency, --rate or both.", returncode=EXIT_USAGE)
    check_is_known(name, options)
    if known_queue(name) is not None:
        raise CommandError(
            f"{name} is a pull queue: no worker claims from it, so a limit would do "
            f"nothing."
        )
    answer: dict[str, Any] = {"queue": name}
    told, is_done = [], False
    if jobs is not UNSAID:
        is_done |= operate.set_concurrency(name, jobs)
        answer["concurrency"] = jobs
        told.append(
            "as many at a time as the settings say"
            if jobs is None
            else f"{count(jobs)} at a time"
        )
    if text is not UNSAID:
        said = None if text is None else Rate(text, options["burst"] or 1)
        is_done |= operate.set_rate(name, said)
        answer["rate"], answer["burst"] = text, None if said is None else said.burst
        told.append(
            "the rate that the settings say"
            if said is None
            else f"{rate(said.spacing)}, {count(said.burst)} at once"
        )
    takes = "; ".join(told)
    return out.answer(
        {**answer, "changed": is_done},
        is_done,
        f"Queue {shown(name)} takes {takes}.",
        f"Queue {shown(name)} took {takes} already.",
    )
