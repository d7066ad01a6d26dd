"""pgqueue send: messages for a pull queue, of the command line or of standard input."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from django.core.management.base import CommandError
from django.db import transaction

from django_pgqueue.bounds import PRIORITY_DEFAULT
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import InvalidArgument, PayloadTooLarge
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_USAGE, Output
from django_pgqueue.management.cli.pull_queue import add_length, add_queue, the_queue
from django_pgqueue.management.cli.words import (
    json_object,
    json_value,
    plain_text,
    priority,
)
from django_pgqueue.operators.human import shown

HELP = "Send messages to a pull queue: JSON values, or a line of standard input each."

# Of one statement; whichever comes first.
BATCH_MESSAGES, BATCH_BYTES = 1_000, 8_000_000


def add_arguments(parser: Any) -> None:
    """Declare the messages, and what send() says of them."""
    add_queue(parser)
    parser.add_argument(
        "payloads",
        nargs="*",
        type=json_value,
        metavar="PAYLOAD",
        help="""A JSON value, such as '{"path": "a.jpg"}'; without one, each line of """
        "standard input is one, and all of them are sent or none is.",
    )
    add_length(parser, "--delay", "Nobody receives them for so long")
    add_length(parser, "--expires", "To the archive after so long, if not received")
    parser.add_argument(
        "--group",
        type=plain_text,
        metavar="GROUP",
        help="Received one at a time and in order with others of this group.",
    )
    parser.add_argument(
        "--key",
        type=plain_text,
        metavar="KEY",
        help="Send nothing while a message of the queue has this key and is not acked; "
        "with one PAYLOAD, and without --group.",
    )
    parser.add_argument(
        "--headers",
        type=json_object,
        default={},
        metavar="JSON",
        help="""Sent along, an object, such as '{"by": "Ann"}'.""",
    )
    parser.add_argument(
        "--priority",
        type=priority,
        default=PRIORITY_DEFAULT,
        metavar="N",
        help=f"-100 to 100, higher first (default {PRIORITY_DEFAULT}).",
    )


def run(options: dict[str, Any], out: Output) -> int:
    """Send them, in one transaction; say which ids they have."""
    payloads, key = options["payloads"], options["key"]
    if key is not None and len(payloads) != 1:
        raise CommandError("--key is of one PAYLOAD.", returncode=EXIT_USAGE)
    said = {
        name: options[name]
        for name in ("delay", "expires", "group", "headers", "priority")
    }
    queue = the_queue(options)
    batches = _batches(payloads or _of_standard_input())
    ids: list[int] = []
    try:
        with transaction.atomic(using=get_settings().database):
            if key is not None:
                ids.append(queue.send(payloads[0], key=key, **said))
            else:
                for batch in batches:
                    ids += queue.send_many(batch, **said)
    except (InvalidArgument, PayloadTooLarge) as error:
        raise CommandError(shown(error), returncode=EXIT_USAGE) from error
    if out.as_json:
        out.json({"queue": queue.name, "ids": ids})
    else:
        some = ", ".join(map(str, ids[:10])) + (", …" if len(ids) > 10 else "")
        are = "message is" if len(ids) == 1 else "messages are"
        out.line(f"{len(ids):,} {are} in queue {queue.name}{some and ': '}{some}")
    return EXIT_DONE


def _of_standard_input() -> Iterator[Any]:
    if sys.stdin.isatty():
        raise CommandError(
            "Give each PAYLOAD, or lines of JSON on standard input.",
            returncode=EXIT_USAGE,
        )
    for number, line in enumerate(sys.stdin, 1):
        if line.strip():
            try:
                yield json_value(line.strip())
            except argparse.ArgumentTypeError as error:
                raise CommandError(
                    f"Line {number:,} of standard input: {shown(error)}. Nothing was "
                    f"sent.",
                    returncode=EXIT_USAGE,
                ) from None


def _batches(payloads: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield them in lists whose size is bounded, in bytes roughly."""
    batch: list[Any] = []
    size = 0
    for payload in payloads:
        batch.append(payload)
        size += len(str(payload))
        if len(batch) >= BATCH_MESSAGES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
