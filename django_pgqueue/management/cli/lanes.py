"""pgqueue lanes: those in which jobs wait, and what is done with one."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable
from typing import Any

from django_pgqueue.log.browse import LOOK_ROWS_MAX
from django_pgqueue.management.cli.acting import suggest
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Output
from django_pgqueue.management.cli.queues import pause, resume
from django_pgqueue.management.cli.words import (
    add_actions,
    add_filters,
    add_limit,
    add_reason,
    add_until,
    capacity,
    plain_text,
    reading,
    weight,
)
from django_pgqueue.models import Lane
from django_pgqueue.operators.human import age, count, shown
from django_pgqueue.operators.lanes import (
    kind_word,
    paused,
    release_told,
    taken,
    waits_for,
)
from django_pgqueue.operators.paging import in_order
from django_pgqueue.operators.pausable import LANE
from django_pgqueue.queues.lane_stats import Found, LaneStats, find_lanes, lane_stats
from django_pgqueue.tasks import database
from django_pgqueue.tasks import operate_queues as operate

HELP = (
    "List lanes in which jobs wait: how many, for how long, and for which job; pause, "
    "resume and release one, say how many it takes, or has in a turn."
)

LIMIT_DEFAULT = 50


def add_arguments(parser: Any) -> None:
    """Declare what is done with which lane; nothing said lists them, by filters."""
    parser.add_argument(
        "--name",
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
    actions = add_actions(parser, {name: told for name, (_, told) in ACTIONS.items()})
    for own in actions.values():
        own.add_argument("lane", type=reading(operate.check_lane), metavar="LANE")
    add_reason(actions["pause"], "lane")
    add_until(actions["pause"])
    actions["capacity"].add_argument(
        "jobs",
        type=capacity,
        metavar="JOBS",
        help="So many at a time, or default: what its jobs say.",
    )
    actions["weight"].add_argument(
        "jobs",
        type=weight,
        metavar="JOBS",
        help="So many in a turn, or default: one.",
    )


def run(options: dict[str, Any], out: Output) -> int:
    """List lanes, or do what is asked for with one."""
    if options.get("action") in (None, "list"):
        return _list(options, out)
    name = options["lane"]
    before = _stats(name)
    act, _told = ACTIONS[options["action"]]
    status = act(name, before, options, out)
    if before is None and not out.as_json:
        out.note(
            f"No job waits in lane {shown(name)!r}, and nobody had said anything of it."
        )
    return status


def _stats(name: str) -> LaneStats | None:
    with in_order(), database.cursor() as cursor:
        return next(iter(lane_stats(cursor, [name])), None)


def _list(options: dict[str, Any], out: Output) -> int:
    text, task = options["name"], options["task"]
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
        out.table(list(map(_row, stats)))
    else:
        out.line("No lane matches." if is_asked else "No job waits in a lane.")
        suggest(out, task=task)
    if not out.as_json:
        _say_next(found, out)
    return EXIT_DONE if stats or not is_asked else EXIT_NOTHING


def _capacity(
    name: str, before: LaneStats | None, options: dict[str, Any], out: Output
) -> int:
    jobs = options["jobs"]
    is_done = operate.set_capacity(name, jobs)
    takes = "what its jobs say" if jobs is None else f"{jobs:,} at a time"
    return out.answer(
        {"lane": name, "capacity": jobs, "changed": is_done},
        is_done,
        f"Lane {shown(name)} takes {takes}.",
        f"Lane {shown(name)} took {takes} already.",
    )


def _weight(
    name: str, before: LaneStats | None, options: dict[str, Any], out: Output
) -> int:
    jobs = options["jobs"]
    is_done = operate.set_weight(name, jobs)
    has = f"{jobs or 1:,} in a turn"
    return out.answer(
        {"lane": name, "weight": jobs, "changed": is_done},
        is_done,
        f"Lane {shown(name)} has {has}.",
        f"Lane {shown(name)} had {has} already.",
    )


def _release(
    name: str, before: LaneStats | None, options: dict[str, Any], out: Output
) -> int:
    released = operate.release(name)
    told = release_told(released, _stats(name))
    return out.answer(
        {"lane": name, "released": released.job, "put_off": released.put_off},
        released.job,
        f"Lane {shown(name)}: {told}",
        f"Lane {shown(name)}: {told}",
    )


Act = Callable[[str, LaneStats | None, dict[str, Any], Output], int]

ACTIONS: dict[str, tuple[Act, str]] = {
    "pause": (
        lambda name, before, options, out: pause(
            LANE, before or Lane(name=name), name, options, out
        ),
        "Let no more of its jobs through; those that it has let through go on.",
    ),
    "resume": (
        lambda name, before, options, out: resume(LANE, Lane(name=name), name, out),
        "End its pause.",
    ),
    "capacity": (
        _capacity,
        "Say how many a limit takes at a time, whatever its jobs say.",
    ),
    "weight": (
        _weight,
        "Say how many jobs a lane of fair_by has in a turn.",
    ),
    "release": (
        _release,
        "Let its next due job through at once, one time; a group still one at a time.",
    ),
}


def _row(lane: LaneStats) -> dict[str, object]:
    head, seconds = lane.head, lane.due_seconds
    waiting, running = (
        count(number, is_more=lane.is_more(number))
        for number in (lane.waiting, lane.running)
    )
    told = [paused(lane), waits_for(lane)]
    return {
        "lane": lane.name,
        "kind": kind_word(lane),
        "waiting": waiting,
        "taken": taken(lane),
        "running": running,
        "oldest": age(seconds) if seconds is not None and seconds >= 0 else "",
        "job": None if head is None else head.id,
        "": "; ".join(filter(None, told)),
    }


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
