"""pgqueue lag: how far behind consumer groups are, by partition."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from django_pgqueue.log.groups import GroupRow, find_all
from django_pgqueue.log.lag import COUNTED_MESSAGES_MAX, PartitionLag, lag
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Column, Output
from django_pgqueue.management.cli.places import chosen, group_name
from django_pgqueue.operators.human import age, count, shown
from django_pgqueue.operators.paging import in_order
from django_pgqueue.operators.states import oldest
from django_pgqueue.tasks import database

HELP = "Tell how far behind consumer groups are, by partition."

COLUMNS = (
    Column("group", may_cut=True),
    Column("partition", right=True),
    Column("state"),
    Column("position", right=True),
    Column("lag", right=True),
    Column("oldest", right=True),
    Column("failures", right=True),
    Column("reader", may_cut=True),
)


def add_arguments(parser: Any) -> None:
    """Declare which group, and what is too much."""
    parser.add_argument(
        "group", nargs="?", type=group_name, metavar="TOPIC/GROUP", help="This one."
    )
    parser.add_argument(
        "--max",
        type=_messages,
        metavar="N",
        help="End with status 1 if a group has more unread messages than that.",
    )


def run(options: dict[str, Any], out: Output) -> int:
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
        told = [_as_json(group, each, limit) for group, each in lags.items()]
        out.json({"groups": told})
    elif groups:
        rows = [
            _row(group, each, limit) for group, every in lags.items() for each in every
        ]
        out.table(COLUMNS, rows)
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


def _row(group: GroupRow, each: PartitionLag, limit: int) -> list[object]:
    return [
        group,
        each.partition,
        each.state,
        each.position,
        count(each.unread, is_more=each.unread >= limit),
        age(each.seconds),
        each.failures or "",
        each.leased_by,
    ]


def _as_json(
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


def _messages(text: str) -> int:
    """Read --max."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number from 0 to 999,999,999"
        )
    return int(text)
