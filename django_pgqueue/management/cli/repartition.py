"""pgqueue repartition: another count of partitions for a topic, while it is used."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import CommandError

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import TopicError
from django_pgqueue.log import groups
from django_pgqueue.log.generations import former_numbers, spans
from django_pgqueue.log.lag import lags
from django_pgqueue.log.names import check_partitions
from django_pgqueue.management.cli.output import (
    EXIT_NOTHING,
    EXIT_USAGE,
    Column,
    Output,
)
from django_pgqueue.management.cli.places import topic_name
from django_pgqueue.models import Topic
from django_pgqueue.operators.human import shown
from django_pgqueue.operators.paging import in_order
from django_pgqueue.operators.states import Behind, behind_of
from django_pgqueue.tasks import database
from django_pgqueue.topics import operate_topics as operate
from django_pgqueue.worker.serving import living_plans

HELP = "Give a topic another count of partitions, while it is published to and read."

COLUMNS = (
    Column("group", may_cut=True),
    Column("state"),
    Column("lag", right=True),
    Column("partitions", right=True),
    Column("halted", right=True),
)


def add_arguments(parser: Any) -> None:
    """Declare which topic, and how many."""
    parser.add_argument("topic", type=topic_name, metavar="TOPIC")
    parser.add_argument("partitions", type=_count, metavar="PARTITIONS")
    parser.add_argument(
        "--yes", "-y", action="store_true", help="Do not ask before doing it."
    )


def run(options: dict[str, Any], out: Output) -> int:
    """Tell who reads the topic, ask, and change the count."""
    name, partitions = options["topic"], options["partitions"]
    topics = Topic.objects.using(get_settings().database)
    row = topics.filter(name=name).first()
    if row is None:
        names = list(topics.values_list("name", flat=True))
        return out.missing("topic", name, names, {"topic": None})
    if row.partitions != partitions and not options["yes"]:
        _preview(row, partitions, out)
        what = f"{name} would have {partitions} instead of {row.partitions} partitions"
        if not out.confirms(what, f"{what}. Repartition {name}?"):
            out.note("Nothing was done.")
            return EXIT_NOTHING
    try:
        is_done = operate.repartition(name, partitions)
    except TopicError as error:
        raise CommandError(str(error), returncode=EXIT_USAGE) from error
    row.refresh_from_db()
    with database.cursor() as cursor:
        former = former_numbers(cursor, row.pk)
    numbers = range(row.first_partition, row.first_partition + row.partitions)
    if not out.as_json and is_done and former:
        out.note(
            f"Partitions {spans(former)} are read to their end beside them. Say the "
            f"new count where the topic is declared, too: topic({name!r}, "
            f"partitions={partitions})"
        )
    return out.answer(
        {
            "topic": name,
            "partitions": row.partitions,
            "first_partition": row.first_partition,
            "repartitioned": is_done,
        },
        is_done,
        f"Topic {name} has {partitions} partitions: {spans(numbers)}.",
        f"Topic {name} has {partitions} partitions already.",
    )


def _preview(row: Any, partitions: int, out: Output) -> None:
    """Print who reads the topic, and how far they are behind."""
    with in_order(), database.cursor() as cursor:
        reading = [each for each in groups.find_all(cursor) if each.topic_id == row.pk]
        found = lags(cursor, [each.id for each in reading])
        plans = living_plans(cursor)
    if reading and not out.as_json:
        lines = [(each, behind_of(each, found[each.id], plans)) for each in reading]
        out.table(COLUMNS, [_line(each, behind) for each, behind in lines])


def _line(row: groups.GroupRow, behind: Behind) -> list[object]:
    return [
        shown(row.name),
        behind.state,
        behind.shown,
        behind.partitions,
        len(behind.halted) or "",
    ]


def _count(text: str) -> int:
    try:
        number = int(text) if text.isascii() and text.isdecimal() else None
        return check_partitions(number, repr(text))
    except TopicError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
