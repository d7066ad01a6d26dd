"""pgqueue lanes: groups and limits in which jobs wait, and for whom."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

from django_pgqueue.log.browse import LOOK_ROWS_MAX
from django_pgqueue.management.cli.acting import suggest
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Column, Output
from django_pgqueue.management.cli.rows import Filters
from django_pgqueue.management.cli.text import shown
from django_pgqueue.management.cli.words import add_filters, add_limit, plain_text
from django_pgqueue.operators.human import age, count
from django_pgqueue.operators.lanes import does
from django_pgqueue.operators.paging import in_order
from django_pgqueue.queues.lane_stats import Found, LaneStats, find_lanes, lane_stats
from django_pgqueue.tasks import database

HELP = "List lanes in which jobs wait: how many, for how long, and for which job."

LIMIT_DEFAULT = 50

COLUMNS = (
    Column("lane", may_cut=True, keeps_end=True),
    Column("kind"),
    Column("waiting", right=True),
    Column("taken", right=True),
    Column("running", right=True),
    Column("oldest", right=True),
    Column("job", right=True),
    Column("", may_cut=True),
)


def add_arguments(parser: Any) -> None:
    """Declare filters and paging."""
    parser.add_argument(
        "text",
        nargs="?",
        type=plain_text,
        metavar="TEXT",
        help="Whose name contains this, in letters of either case.",
    )
    add_filters(parser, "task")
    add_limit(parser, LIMIT_DEFAULT)
    parser.add_argument(
        "--after",
        type=plain_text,
        default="",
        metavar="LANE",
        help="Go on after this name.",
    )


def run(options: dict[str, Any], out: Output) -> int:
    """Print one line for each lane."""
    text, task = options["text"], options["task"]
    with in_order(), database.cursor() as cursor:
        found = find_lanes(
            cursor,
            after=options["after"],
            limit=options["limit"],
            looks=LOOK_ROWS_MAX,
            text=text,
            task=task,
        )
        stats = lane_stats(cursor, found.lanes)
    is_asked = text is not None or task is not None or options["after"]
    if out.as_json:
        lanes = [dataclasses.asdict(lane) for lane in stats]
        out.json({"lanes": lanes, "next": found.after})
    elif stats:
        out.table(COLUMNS, list(map(_row, stats)))
    else:
        out.line("No lane matches." if is_asked else "No job waits in a lane.")
        suggest(Filters(task=task), out)
    if not out.as_json:
        _say_next(found, out)
    return EXIT_DONE if stats or not is_asked else EXIT_NOTHING


def _row(lane: LaneStats) -> list[object]:
    head, seconds = lane.head, lane.due_seconds
    waiting, taken, running = (
        count(number, is_more=lane.is_more(number))
        for number in (lane.waiting, lane.let_through, lane.running)
    )
    return [
        lane.name,
        "group" if lane.capacity is None else "limit",
        waiting,
        f"{taken} of {lane.capacity or 1:,}",
        running,
        age(seconds) if seconds is not None and seconds >= 0 else "",
        None if head is None else head.id,
        None if head is None else does(head),
    ]


def _say_next(found: Found, out: Output) -> None:
    """Say that there are more, or may be, and how to see them."""
    if found.after is None:
        return
    there = f"--after {shlex.quote(shown(found.after))}"
    if found.is_cut:
        looked = f"{LOOK_ROWS_MAX:,} lanes were looked through; there may be more:"
        out.note(f"{looked} {there}")
    else:
        out.note(f"More: {there}")
