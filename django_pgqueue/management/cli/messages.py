"""pgqueue peek and publish: messages of topics.

A peek consumes nothing, and nobody's position moves. Payloads are fetched as text,
since PostgreSQL stores JSON that Python cannot read.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast, Now

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import did_you_mean
from django_pgqueue.log.browse import LOOK_ROWS_MAX, Found, Wanted, browse
from django_pgqueue.log.generations import numbers_of, spans
from django_pgqueue.log.names import topic_of
from django_pgqueue.log.seek import EARLIEST, LATEST
from django_pgqueue.log.start import first_id
from django_pgqueue.management.cli.output import (
    EXIT_DONE,
    EXIT_NOTHING,
    Output,
    Subcommand,
)
from django_pgqueue.management.cli.show import UNREADABLE
from django_pgqueue.management.cli.words import (
    add_limit,
    json_object,
    json_value,
    moment_or_length,
    partition,
    place,
    plain_text,
    resolved,
    topic_name,
)
from django_pgqueue.models import Message, Topic
from django_pgqueue.operators.human import distance, shown, size
from django_pgqueue.operators.paging import in_order
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.redaction.values import redact
from django_pgqueue.tasks import database
from django_pgqueue.topics.publish import publish
from django_pgqueue.topics.registry import declared, find

# Peek ---------------------------------------------------------------------------------


PEEK_DEFAULT = 10

# Characters of a payload in a table; --json has all of it.
PAYLOAD_CHARACTERS_MAX = 500

# Of the text of what one call shows; one message always passes. It is read in parts.
PAGE_BYTES_MAX = 16_777_216
READ_TOGETHER = 10


def _add_peek(parser: Any) -> None:
    """Declare which messages, and how much of them."""
    parser.add_argument("topic", type=topic_name, metavar="TOPIC")
    parser.add_argument(
        "--name", type=plain_text, metavar="NAME", help="Of this name, as a whole."
    )
    parser.add_argument("--key", type=plain_text, metavar="KEY", help="With this key.")
    parser.add_argument(
        "--partition", type=partition, metavar="N", help="In this partition."
    )
    parser.add_argument(
        "--from",
        dest="start",
        type=place,
        metavar="PLACE",
        help="From there on, the oldest first: an id, a time, how long ago, earliest.",
    )
    add_limit(parser, PEEK_DEFAULT)
    parser.add_argument(
        "--show-payload",
        action="store_true",
        help="Show values that PGQUEUE['REDACT'] hides, as they are stored.",
    )


def _peek(options: dict[str, Any], out: Output) -> int:
    """Print one line for each message."""
    topics = Topic.objects.using(get_settings().database)
    topic = topics.only("name").filter(name=options["topic"]).first()
    if topic is None:
        names = list(topics.values_list("name", flat=True))
        nothing: dict[str, Any] = {"messages": [], "next": None}
        return out.missing("topic", options["topic"], names, nothing)
    with database.cursor() as cursor:
        numbers = numbers_of(cursor, topic.pk)
    missing = _cannot_be(topic, numbers, options)
    if missing is not None:
        if out.as_json:
            out.json({"messages": [], "next": None})
        out.note(missing)
        return EXIT_NOTHING
    start = None if options["start"] == LATEST else options["start"]
    found = _find(topic, numbers, start, options)
    rows = _read_messages(found.ids, is_oldest_first=start is not None)
    for row in rows:
        decode(row, in_full=options["show_payload"])
    is_cut = 0 < len(rows) < len(found.ids)
    # Go on after the last one of a page that is full, or where the look has ended.
    onward = found.end
    if start is not None and (is_cut or len(rows) == options["limit"]):
        onward = rows[-1]["id"]
    if out.as_json:
        out.json(
            {
                "messages": [_without_clock(row) for row in rows],
                "next": None if onward is None or start is None else onward + 1,
            }
        )
        return EXIT_DONE if rows else EXIT_NOTHING
    if rows:
        out.table(list(map(_message_row, rows)))
    else:
        out.line("No message matches.")
    if is_cut and start is None:
        out.note(
            f"The newest {len(rows):,} have {size(PAGE_BYTES_MAX)} of text. To begin "
            f"with the oldest: --from earliest"
        )
    elif found.end is not None and start is None:
        out.note(
            f"The newest {LOOK_ROWS_MAX:,} messages were looked through; there may be "
            f"more. To begin with the oldest: --from earliest"
        )
    elif onward is not None and start is not None:
        out.note(f"More: --from {onward + 1}")
    return EXIT_DONE if rows else EXIT_NOTHING


def _cannot_be(topic: Any, numbers: list[int], options: dict[str, Any]) -> str | None:
    """Return why the topic cannot have such a message; None: it can."""
    name, partition = options["name"], options["partition"]
    if partition is not None and partition not in numbers:
        return (
            f"Topic {topic.name} has no partition {partition}; it has {spans(numbers)}."
        )
    if name is not None and name.partition(".")[0] != topic.name:
        return (
            f"No message of topic {topic.name} is called {shown(name)!r}: their names "
            f"begin with {topic.name!r}."
        )
    return None


def _find(topic: Any, numbers: list[int], start: Any, options: dict[str, Any]) -> Found:
    with (
        in_order(),
        database.cursor() as cursor,
    ):
        above = -1
        if start is not None and start != EARLIEST:
            above = _first(cursor, resolved(cursor, start)) - 1
        wanted = Wanted(
            topic_id=topic.pk,
            partitions=numbers
            if options["partition"] is None
            else [options["partition"]],
            name=options["name"],
            key=options["key"],
            above=above,
        )
        return browse(
            cursor, wanted, limit=options["limit"], is_oldest_first=start is not None
        )


def _first(cursor: Cursor, start: int | str | datetime) -> int:
    return first_id(cursor, start) if isinstance(start, datetime) else int(start)


def _read_messages(ids: list[int], *, is_oldest_first: bool) -> list[dict[str, Any]]:
    """Return messages by id: the first ones asked for, up to PAGE_BYTES_MAX of text."""
    ordered = sorted(ids, reverse=not is_oldest_first)
    rows: list[dict[str, Any]] = []
    left = PAGE_BYTES_MAX
    for first in range(0, len(ordered), READ_TOGETHER):
        for row in _read_some(ordered[first : first + READ_TOGETHER]):
            left -= len(row["payload_text"]) + len(row["headers_text"])
            if left < 0 and rows:
                break
            rows.append(row)
        if left < 0:
            break
    return rows if is_oldest_first else rows[::-1]


def _read_some(ids: list[int]) -> list[dict[str, Any]]:
    """Return messages in the order of *ids*."""
    rows = Message.objects.using(get_settings().database).filter(id__in=ids)
    with in_order():
        found = {
            row["id"]: row
            for row in rows.order_by("id")
            .annotate(
                clock=Now(),
                payload_text=Cast("payload", TextField()),
                headers_text=Cast("headers", TextField()),
            )
            .values(
                *("id", "published_at", "name", "key", "partition", "clock"),
                *("payload_text", "headers_text"),
            )
        }
    return [found[each] for each in ids if each in found]


def decode(row: dict[str, Any], *, in_full: bool) -> None:
    """Read payload and headers of a row, redacted unless asked for *in_full*."""
    for name in ("payload", "headers"):
        text = row.pop(f"{name}_text")
        try:
            row[name] = json.loads(text)
            json.dumps(row[name])  # Too deep to be written is unreadable too.
        except (ValueError, RecursionError):
            row[name] = text if in_full else UNREADABLE
            continue
        if not in_full:
            row[name] = redact(row[name], get_settings().redact)


def payload_shown(row: dict[str, Any]) -> str:
    """Return the payload of a row for a table, shortened."""
    text = json.dumps(row["payload"], ensure_ascii=False)
    if len(text) > PAYLOAD_CHARACTERS_MAX:
        text = f"{text[:PAYLOAD_CHARACTERS_MAX]}…"
    return text


def _message_row(row: dict[str, Any]) -> dict[str, object]:
    return {
        "id": row["id"],
        "published": distance(row["published_at"], row["clock"]),
        "name": row["name"],
        "key": row["key"],
        "partition": row["partition"],
        "payload": payload_shown(row),
    }


def _without_clock(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "clock"}


# Publish ------------------------------------------------------------------------------


def _add_publish(parser: Any) -> None:
    """Declare what publish() takes."""
    parser.add_argument(
        "name",
        type=plain_text,
        metavar="NAME",
        help="What it is called, such as orders.created: its topic is before the dot.",
    )
    parser.add_argument(
        "payload",
        type=json_value,
        metavar="PAYLOAD",
        help="""A JSON value, such as '{"id": 42}'.""",
    )
    parser.add_argument(
        "--key",
        type=plain_text,
        metavar="KEY",
        help="Messages of one key keep their order.",
    )
    parser.add_argument(
        "--headers",
        type=json_object,
        metavar="JSON",
        help="""Published along, an object, such as '{"by": "Ann"}'.""",
    )
    parser.add_argument(
        "--run-after",
        type=moment_or_length,
        metavar="TIME",
        help="Not before: 2026-01-31T12:00+01:00, or after so long: 90m, 2h, 1d.",
    )


def _publish(options: dict[str, Any], out: Output) -> int:
    """Publish it; say which id it has."""
    name = options["name"]
    topic = topic_of(name)
    rows = Topic.objects.using(get_settings().database)
    is_known = find(topic) is not None or rows.filter(name=topic).exists()
    message_id = publish(
        name,
        options["payload"],
        key=options["key"],
        headers=options["headers"],
        run_after=options["run_after"],
    )
    if out.as_json:
        out.json({"id": message_id, "name": name})
    else:
        # Below zero, it is published by the job of that number.
        when = "is published" if message_id > 0 else "is published later"
        out.line(f"Message {message_id} of {shown(name)} {when}.")
    if not is_known:
        near = did_you_mean(topic, [each.name for each in declared()])
        out.note(f"Topic {shown(topic)} is new: no code declares it.{shown(near)}")
    return EXIT_DONE


PEEK = Subcommand(
    "Show messages of a topic: the newest ones, or those from a place on.",
    _add_peek,
    _peek,
)

PUBLISH = Subcommand(
    "Publish one message to its topic.",
    _add_publish,
    _publish,
)
