"""pgqueue groups, lag and seek: who reads the logs of topics, and from where."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django_pgqueue.exceptions import MessagesLost
from django_pgqueue.log.groups import GroupRow, find_all
from django_pgqueue.log.lag import COUNTED_MESSAGES_MAX, PartitionLag, lag, lags
from django_pgqueue.management.cli.output import (
    EXIT_DONE,
    EXIT_NOTHING,
    Output,
    Subcommand,
)
from django_pgqueue.management.cli.queues import pause, resume
from django_pgqueue.management.cli.words import (
    add_actions,
    add_reason,
    chosen,
    group_name,
    partition,
    place,
    resolved,
    whole_number,
)
from django_pgqueue.operators.human import age, by_whom, count, shown
from django_pgqueue.operators.paging import in_order
from django_pgqueue.operators.pausable import GROUP
from django_pgqueue.operators.states import Behind, behind_of, oldest, seek_preview
from django_pgqueue.tasks import database
from django_pgqueue.topics import operate_groups as operate
from django_pgqueue.worker.serving import living_plans

# Groups -------------------------------------------------------------------------------


def _add_groups(parser: Any) -> None:
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


def _groups(options: dict[str, Any], out: Output) -> int:
    """List groups, or do what is asked for with one."""
    with database.cursor() as cursor:
        rows = find_all(cursor)
    if options.get("action") in (None, "list"):
        return _list_groups(rows, out)
    row = chosen(rows, options["group"], out)
    if row is None:
        if out.as_json:
            out.json({"group": None})
        return EXIT_NOTHING
    act, _told = ACTIONS[options["action"]]
    return act(row, options, out)


def _list_groups(rows: list[GroupRow], out: Output) -> int:
    with in_order(), database.cursor() as cursor:
        found_lags = lags(cursor, [row.id for row in rows])
        plans = living_plans(cursor)
    found = [(row, behind_of(row, found_lags[row.id], plans)) for row in rows]
    if out.as_json:
        out.json({"groups": [_group_as_json(row, behind) for row, behind in found]})
    elif rows:
        out.table([_group_row(row, behind) for row, behind in found])
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


def _group_row(row: GroupRow, behind: Behind) -> dict[str, object]:
    return {
        "group": row,
        "state": behind.state,
        "lag": behind.shown,
        "oldest": age(behind.seconds),
        "partitions": behind.partitions,
        "halted": len(behind.halted) or "",
        "queue": row.queue if row.task else "",
        "task": row.task,
        "": "" if row.paused_at is None else f"paused{by_whom(row)}",
    }


def _group_as_json(row: GroupRow, behind: Behind) -> dict[str, Any]:
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


# Lag ----------------------------------------------------------------------------------


def _add_lag(parser: Any) -> None:
    """Declare which group, and what is too much."""
    parser.add_argument(
        "group", nargs="?", type=group_name, metavar="TOPIC/GROUP", help="This one."
    )
    parser.add_argument(
        "--max",
        type=whole_number(999_999_999, least=0),
        metavar="N",
        help="End with status 1 if a group has more unread messages than that.",
    )


def _lag(options: dict[str, Any], out: Output) -> int:
    """Print one line for each partition."""
    with in_order(), database.cursor() as cursor:
        groups = find_all(cursor)
        if options["group"] is not None:
            row = chosen(groups, options["group"], out)
            groups = [] if row is None else [row]
        limit = max(COUNTED_MESSAGES_MAX, (options["max"] or 0) + 1)
        lags = {group: lag(cursor, group.id, limit=limit) for group in groups}
    over = [] if options["max"] is None else _over(lags, options["max"])
    if out.as_json:
        told = [_lag_as_json(group, each, limit) for group, each in lags.items()]
        out.json({"groups": told})
    elif groups:
        rows = [
            _lag_row(group, each, limit)
            for group, every in lags.items()
            for each in every
        ]
        out.table(rows)
    elif options["group"] is None:
        out.line("There is no consumer group.")
    for group, unread in over:
        out.note(
            f"Group {shown(group)} has {unread:,} unread messages; the limit is "
            f"{options['max']:,}."
        )
    is_missing = options["group"] is not None and not groups
    return EXIT_NOTHING if over or is_missing else EXIT_DONE


def _over(
    lags: dict[GroupRow, list[PartitionLag]], most: int
) -> list[tuple[GroupRow, int]]:
    totals = [(group, sum(each.unread for each in lags[group])) for group in lags]
    return [(group, unread) for group, unread in totals if unread > most]


def _lag_row(group: GroupRow, each: PartitionLag, limit: int) -> dict[str, object]:
    return {
        "group": group,
        "partition": each.partition,
        "state": each.state,
        "position": each.position,
        "lag": count(each.unread, is_more=each.unread >= limit),
        "oldest": age(each.seconds),
        "failures": each.failures or "",
        "reader": each.leased_by,
    }


def _lag_as_json(
    group: GroupRow, lags: list[PartitionLag], limit: int
) -> dict[str, object]:
    return {
        "topic": group.topic,
        "group": group.name,
        "unread": sum(each.unread for each in lags),
        # Whether some partition was counted no further.
        "is_partial": any(each.unread >= limit for each in lags),
        "oldest_seconds": oldest(lags),
        "partitions": [_partition_as_json(each) for each in lags],
    }


def _partition_as_json(each: PartitionLag) -> dict[str, object]:
    told = dataclasses.asdict(each)
    # What a handler's error says can quote a payload.
    for name in ("id", "last_error", "is_paused", "is_leased", "is_backing_off"):
        del told[name]
    return {**told, "state": each.state}


# Seek ---------------------------------------------------------------------------------


def _add_seek(parser: Any) -> None:
    """Declare which group, and where to."""
    parser.add_argument("group", type=group_name, metavar="TOPIC/GROUP")
    parser.add_argument(
        "--to",
        type=place,
        required=True,
        metavar="PLACE",
        help="earliest, latest, an id after which to go on, a time, or how long ago.",
    )
    parser.add_argument(
        "--partition", type=partition, metavar="N", help="This one (default: all)."
    )
    parser.add_argument(
        "--yes", "-y", action="store_true", help="Do not ask before doing it."
    )


def _run_seek(options: dict[str, Any], out: Output) -> int:
    """Seek, if it is meant."""
    with database.cursor() as cursor:
        row = chosen(find_all(cursor), options["group"], out)
        to = resolved(cursor, options["to"])
    if row is None:
        if out.as_json:
            out.json({"group": None})
        return EXIT_NOTHING
    try:
        return _seek(row, to, options, out)
    except MessagesLost as error:
        if out.as_json:
            out.json({"group": str(row), "moved": [], "lost": str(error)})
        out.note(f"Nothing was done. {shown(error)}")
        return EXIT_NOTHING


def _seek(
    row: GroupRow, to: int | str | datetime, options: dict[str, Any], out: Output
) -> int:
    if not options["yes"]:
        preview = operate.preview_seek(row, to, partition=options["partition"])
        what = seek_preview(preview)
        if not out.confirms(what, f"{what}. Seek {shown(row)}?"):
            out.note("Nothing was done.")
            return EXIT_NOTHING
    done = operate.seek(row, to, partition=options["partition"])
    if out.as_json:
        moved = [
            {"partition": each.partition, "from": each.before, "to": each.now}
            for each in done
        ]
        out.json({"group": str(row), "moved": moved})
    else:
        count = f"{len(done)} partition{'' if len(done) == 1 else 's'}"
        out.line(f"Group {shown(row)} reads on from there, in {count}.")
    return EXIT_DONE


GROUPS = Subcommand(
    "List consumer groups with their lag; pause, resume, read on and forget one.",
    _add_groups,
    _groups,
)

LAG = Subcommand(
    "Tell how far behind consumer groups are, by partition.",
    _add_lag,
    _lag,
)

SEEK = Subcommand(
    "Let a consumer group read on from another place: tells what happens, and asks.",
    _add_seek,
    _run_seek,
)
