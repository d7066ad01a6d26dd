"""pgqueue groups: who reads the logs of topics, and what an operator does with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from django_pgqueue.exceptions import MessagesLost
from django_pgqueue.log.groups import GroupRow, find_all
from django_pgqueue.log.lag import lags
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Column, Output
from django_pgqueue.management.cli.pausing import pause, resume
from django_pgqueue.management.cli.places import chosen, group_name, partition
from django_pgqueue.management.cli.text import by_whom
from django_pgqueue.management.cli.words import add_actions, add_reason
from django_pgqueue.operators.human import age, shown
from django_pgqueue.operators.paging import in_order
from django_pgqueue.operators.pausable import GROUP
from django_pgqueue.operators.states import Behind, behind_of
from django_pgqueue.tasks import database
from django_pgqueue.topics import operate_groups as operate
from django_pgqueue.worker.serving import living_plans

HELP = "List consumer groups with their lag; pause, resume, read on and forget one."

COLUMNS = (
    Column("group", may_cut=True),
    Column("state"),
    Column("lag", right=True),
    Column("oldest", right=True),
    Column("partitions", right=True),
    Column("halted", right=True),
    Column("queue", may_cut=True),
    Column("task", may_cut=True),
    Column("", may_cut=True),
)


def add_arguments(parser: Any) -> None:
    """Declare what is done with which group; nothing said lists all of them."""
    actions = add_actions(parser, {name: told for name, (_, told) in ACTIONS.items()})
    for own in actions.values():
        own.add_argument("group", type=group_name, metavar="TOPIC/GROUP")
    add_reason(actions["pause"], "group")
    actions["read-on"].add_argument(
        "--partition",
        type=partition,
        metavar="N",
        help="This one alone (default: all that are halted).",
    )


def run(options: dict[str, Any], out: Output) -> int:
    """List groups, or do what is asked for with one."""
    with database.cursor() as cursor:
        rows = find_all(cursor)
    if options.get("action") in (None, "list"):
        return _list(rows, out)
    row = chosen(rows, options["group"], out)
    if row is None:
        if out.as_json:
            out.json({"group": None})
        return EXIT_NOTHING
    act, _told = ACTIONS[options["action"]]
    return act(row, options, out)


def _list(rows: list[GroupRow], out: Output) -> int:
    with in_order(), database.cursor() as cursor:
        found_lags = lags(cursor, [row.id for row in rows])
        plans = living_plans(cursor)
    found = [(row, behind_of(row, found_lags[row.id], plans)) for row in rows]
    if out.as_json:
        out.json({"groups": [_as_json(row, behind) for row, behind in found]})
    elif rows:
        out.table(COLUMNS, [_row(row, behind) for row, behind in found])
    else:
        out.line("There is no consumer group.")
    return EXIT_DONE


def _read_on(row: GroupRow, options: dict[str, Any], out: Output) -> int:
    done: list[int] = []
    lost = None
    asked = options["partition"]
    try:
        done = operate.read_on(row, asked)
    except MessagesLost as error:
        lost = str(error)
    if out.as_json:
        out.json({"group": str(row), "read_on": done, "lost": lost})
    elif lost is not None:
        out.note(f"Group {shown(row)} was left as it is. {shown(lost)}")
    elif done:
        told = ", ".join(map(str, done))
        out.line(f"Group {shown(row)} reads on, in partition {told}.")
    else:
        what = (
            "no halted partition" if asked is None else f"no halted partition {asked}"
        )
        out.line(f"Group {shown(row)} has {what}.")
    return EXIT_DONE if done else EXIT_NOTHING


def _forget(row: GroupRow, options: dict[str, Any], out: Output) -> int:
    is_done = operate.forget(row)
    return out.answer(
        {"group": str(row), "forgotten": is_done},
        is_done,
        f"Group {shown(row)} and its positions are deleted.",
        f"Group {shown(row)} is not paused, so it was left as it is: pause it "
        f"first. Code that still declares it makes it anew.",
    )


Act = Callable[[GroupRow, dict[str, Any], Output], int]

ACTIONS: dict[str, tuple[Act, str]] = {
    "pause": (
        lambda row, options, out: pause(GROUP, row, str(row), options, out),
        "Let nobody read for it; what is being read is finished.",
    ),
    "resume": (
        lambda row, options, out: resume(GROUP, row, str(row), out),
        "End its pause.",
    ),
    "read-on": (_read_on, "Read its halted partitions again, with all attempts."),
    "forget": (_forget, "Delete it and its positions; it has to be paused."),
}


def _row(row: GroupRow, behind: Behind) -> list[object]:
    return [
        row,
        behind.state,
        behind.shown,
        age(behind.seconds),
        behind.partitions,
        len(behind.halted) or "",
        row.queue if row.task else "",
        row.task,
        "" if row.paused_at is None else f"paused{by_whom(row)}",
    ]


def _as_json(row: GroupRow, behind: Behind) -> dict[str, Any]:
    told = dataclasses.asdict(row)
    # A filter can name a value that is nobody's business; the admin redacts it.
    del told["id"], told["topic_id"], told["where"]
    # As `lag` and `topics` call it.
    names = {"topic": told.pop("topic"), "group": told.pop("name")}
    return {
        **names,
        **told,
        "state": behind.state,
        "unread": behind.unread,
        "is_partial": behind.is_more,
        "oldest_seconds": behind.seconds,
        "partitions": behind.partitions,
        "halted": behind.halted,
    }
