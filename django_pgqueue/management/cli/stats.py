"""pgqueue stats: how many jobs each queue has, by state."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from functools import partial
from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.management.cli.acting import suggest
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Column, Output
from django_pgqueue.management.cli.rows import Filters
from django_pgqueue.management.cli.words import add_filters, whole_number
from django_pgqueue.operators.human import age, count, share
from django_pgqueue.operators.pausable import paused
from django_pgqueue.operators.queue_limits import taken
from django_pgqueue.queues.stats import QueueStats, queue_stats
from django_pgqueue.tasks import database

HELP = "Count the jobs of each queue by state; once, or every few seconds."

WATCH_SECONDS, WATCH_SECONDS_MAX = 2, 3_600

COUNTS = ("ready", "running", "retrying", "scheduled", "parked", "dead")

COLUMNS = (
    Column("queue", may_cut=True),
    *(Column(name, right=True) for name in COUNTS),
    Column("oldest", right=True),
    Column("", may_cut=True),
)


def add_arguments(parser: Any) -> None:
    """Declare the queue, and how often."""
    add_filters(parser, "queue")
    parser.add_argument(
        "--watch",
        nargs="?",
        const=WATCH_SECONDS,
        type=partial(whole_number, most=WATCH_SECONDS_MAX),
        metavar="SECONDS",
        help=f"Print them again every so many seconds (default {WATCH_SECONDS}), "
        f"until Ctrl+C.",
    )


def run(options: dict[str, Any], out: Output) -> int:
    """Print one line for each queue; with --watch, until it is interrupted."""
    if options["watch"] is None:
        return _print(options, out)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            _print(options, out)
            out.flush()
            time.sleep(options["watch"])
            if not out.as_json:
                out.line()
    return EXIT_DONE


def _print(options: dict[str, Any], out: Output) -> int:
    name, settings = options["queue"], get_settings()
    with database.cursor() as cursor:
        stats = queue_stats(cursor, depth_limits=settings.depths_max)
    if name is not None:
        stats = [queue for queue in stats if queue.name == name]
    if out.as_json:
        out.json({"queues": list(map(dataclasses.asdict, stats))})
    elif stats:
        limits = settings.queue_limits
        out.table(COLUMNS, [_row(queue, taken(queue, limits)) for queue in stats])
        if any(queue.is_partial for queue in stats):
            out.line("+ means this many or more: counts stop there.")
    else:
        out.line(
            "There is no queue yet." if name is None else "There is no such queue."
        )
        suggest(Filters(queue=name), out)
    return EXIT_DONE if stats or name is None else EXIT_NOTHING


def _row(queue: QueueStats, limit: str) -> list[str]:
    notes = ["pull queue"] if queue.kind == "pull" else []
    if queue.is_paused:
        notes.append(paused(queue))
    if limit:
        notes.append(limit)
    if queue.depth is not None and queue.depth_max is not None:
        notes.append(f"holds {share(queue.depth, queue.depth_max)}")
    if queue.alone:
        notes.append(f"{_count(queue, 'alone')} of the ready wait to run alone")
    return [
        queue.name,
        *(_count(queue, name) for name in COUNTS),
        age(queue.oldest_ready_seconds),
        "; ".join(notes),
    ]


def _count(queue: QueueStats, name: str) -> str:
    return count(getattr(queue, name), is_more=queue.is_more(name))
