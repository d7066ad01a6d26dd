"""pgqueue seek: a consumer group reads on from another place."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from django_pgqueue.exceptions import MessagesLost, TopicError
from django_pgqueue.log.groups import GroupRow, find_all
from django_pgqueue.management.cli.output import (
    EXIT_DONE,
    EXIT_NOTHING,
    EXIT_USAGE,
    Output,
)
from django_pgqueue.management.cli.places import (
    chosen,
    group_name,
    partition,
    place,
    resolved,
)
from django_pgqueue.operators.human import shown
from django_pgqueue.operators.states import seek_preview
from django_pgqueue.tasks import database
from django_pgqueue.topics import operate_groups as operate

HELP = "Let a consumer group read on from another place: tells what happens, and asks."


def add_arguments(parser: Any) -> None:
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


def run(options: dict[str, Any], out: Output) -> int:
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
    except TopicError as error:
        raise CommandError(str(error), returncode=EXIT_USAGE) from error


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
