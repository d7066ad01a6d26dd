"""pgqueue receive: the next messages of a pull queue, a line of JSON each."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Output
from django_pgqueue.management.cli.pull_queue import add_length, add_queue, the_queue
from django_pgqueue.management.cli.words import whole_number
from django_pgqueue.pull.message import PullMessage
from django_pgqueue.queues.pull import RECEIVE_MAX

HELP = "Receive the next messages of a pull queue; prints a line of JSON each."


def add_arguments(parser: Any) -> None:
    """Declare what receive() takes, and whether that is all."""
    add_queue(parser)
    parser.add_argument(
        "-n",
        dest="limit",
        type=partial(whole_number, most=RECEIVE_MAX),
        default=1,
        metavar="N",
        help=f"At most so many, 1 to {RECEIVE_MAX:,} (default 1).",
    )
    add_length(
        parser,
        "--wait",
        "Wait so long for the first (default: not)",
        default=timedelta(0),
    )
    add_length(
        parser, "--visibility", "They are ours for so long (default: the queue's)"
    )
    parser.add_argument(
        "--ack",
        action="store_true",
        help="End them once they are printed; else do it by ack RECEIPT.",
    )


def run(options: dict[str, Any], out: Output) -> int:
    """Receive once; print each with its receipt."""
    queue = the_queue(options)
    messages = queue.receive(
        options["limit"], wait=options["wait"], visibility=options["visibility"]
    )
    if out.as_json:
        out.json({"messages": [_facts(each) for each in messages]})
    else:
        for each in messages:
            out.json(_facts(each))
    if options["ack"] and messages:
        out.flush()
        stale = queue.ack(messages).stale
        if stale:
            out.note(f"Not acked, since they are not ours any more: {', '.join(stale)}")
            return EXIT_NOTHING
    return EXIT_DONE if messages else EXIT_NOTHING


def _facts(message: PullMessage) -> dict[str, Any]:
    return {
        "receipt": message.receipt,
        "id": message.id,
        "deliveries": message.deliveries,
        "group": message.group,
        "sent_at": message.sent_at,
        "received_at": message.received_at,
        "payload": message.stored_payload,
        "headers": message.headers,
    }
