"""pgqueue scheduled: messages that are published later; list and cancel them."""

from __future__ import annotations

import argparse
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast, Now

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import InvalidArgument
from django_pgqueue.log import scheduled
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Column, Output
from django_pgqueue.management.cli.peek import decode, payload_shown
from django_pgqueue.management.cli.places import topic_name
from django_pgqueue.management.cli.words import add_actions, add_limit
from django_pgqueue.models import ScheduledMessage
from django_pgqueue.operators.human import distance
from django_pgqueue.operators.paging import in_order
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.tasks import database
from django_pgqueue.topics.scheduled import check_id

HELP = "List messages that are published later, the next first; or cancel some."

LIMIT_DEFAULT = 50

COLUMNS = (
    Column("id", right=True),
    Column("due"),
    Column("name", may_cut=True),
    Column("key", may_cut=True),
    Column("payload", may_cut=True),
    Column("error", may_cut=True),
)


def add_arguments(parser: Any) -> None:
    """Declare what is listed, or which are cancelled."""
    actions = add_actions(
        parser,
        {"cancel": "Cancel messages that have not been published, by their ids."},
    )
    actions["cancel"].add_argument("ids", nargs="+", type=message_id, metavar="ID")
    parser.add_argument(
        "--topic", type=topic_name, metavar="TOPIC", help="Of this topic."
    )
    add_limit(parser, LIMIT_DEFAULT)
    parser.add_argument(
        "--show-payload",
        action="store_true",
        help="Show values that PGQUEUE['REDACT'] hides, as they are stored.",
    )


def message_id(text: str) -> int:
    """Read the id of a message that is published later."""
    is_number = text.startswith("-") and text[1:].isascii() and text[1:].isdecimal()
    try:
        return check_id(int(text[:30]) if is_number else text)
    except InvalidArgument:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no id of a message that is published later, such as -42"
        ) from None


def run(options: dict[str, Any], out: Output) -> int:
    """List messages, or cancel some."""
    if options["action"] == "cancel":
        return _cancel(options["ids"], out)
    rows = _read(options)
    is_more = len(rows) > options["limit"]
    rows = rows[: options["limit"]]
    for row in rows:
        decode(row, in_full=options["show_payload"])
        if row["error"] is not None and not options["show_payload"]:
            row["error"] = redact_text(row["error"], get_settings().redact)
    if out.as_json:
        told = [{name: row[name] for name in row if name != "clock"} for row in rows]
        out.json({"scheduled": told, "is_more": is_more})
    elif rows:
        out.table(COLUMNS, list(map(_row, rows)))
    else:
        out.line("No message is published later.")
    if is_more and not out.as_json:
        out.note("There are more: --limit")
    return EXIT_DONE


def _read(options: dict[str, Any]) -> list[dict[str, Any]]:
    rows = ScheduledMessage.objects.using(get_settings().database)
    if options["topic"] is not None:
        rows = rows.filter(topic=options["topic"])
    with in_order():
        return list(
            rows.order_by("due_at", "-id")
            .annotate(
                clock=Now(),
                payload_text=Cast("payload", TextField()),
                headers_text=Cast("headers", TextField()),
            )
            .values(
                *("id", "run_after", "due_at", "topic", "name", "key", "failures"),
                *("error", "created_at", "clock", "payload_text", "headers_text"),
            )[: options["limit"] + 1]
        )


def _row(row: dict[str, Any]) -> list[object]:
    return [
        row["id"],
        distance(row["due_at"], row["clock"]),
        row["name"],
        row["key"],
        payload_shown(row),
        row["error"],
    ]


def _cancel(ids: list[int], out: Output) -> int:
    with database.transaction() as (_connection, cursor):
        done = scheduled.cancel(cursor, ids)
    left = [each for each in ids if each not in done]
    if out.as_json:
        out.json({"cancelled": done, "left": left})
    else:
        for each in done:
            out.line(f"Message {each} was cancelled.")
        for each in left:
            out.line(f"Message {each} is not there: published, or cancelled.")
    return EXIT_NOTHING if left else EXIT_DONE
