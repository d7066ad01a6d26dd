"""pgqueue send, receive, ack, nack, reject and extend: messages of pull queues."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from django.core.management.base import CommandError
from django.db import transaction

from django_pgqueue.bounds import PRIORITY_DEFAULT
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import did_you_mean
from django_pgqueue.exceptions import shown as in_error
from django_pgqueue.management.cli.output import (
    EXIT_DONE,
    EXIT_NOTHING,
    EXIT_USAGE,
    Output,
    Subcommand,
)
from django_pgqueue.management.cli.words import (
    json_object,
    json_value,
    length,
    plain_text,
    priority,
    queue_name,
    whole_number,
)
from django_pgqueue.operators.human import shown
from django_pgqueue.pull.message import PullMessage
from django_pgqueue.pull.queue import PullQueue, known_names, known_queue
from django_pgqueue.queues.pull import RECEIPT, RECEIVE_MAX, Answer


def add_queue(parser: Any) -> None:
    """Declare the queue."""
    parser.add_argument("queue", type=queue_name, metavar="QUEUE")


def add_length(parser: Any, name: str, what: str, **options: Any) -> None:
    """Declare *name*, a length of time."""
    parser.add_argument(
        name,
        type=partial(length, name=f"the {name.removeprefix('--')}"),
        metavar="LENGTH",
        help=f"{what}: 500ms, 90s, 2h.",
        **options,
    )


def the_queue(options: dict[str, Any]) -> PullQueue:
    """
    Return the queue that the command line names.

    Raises:
        CommandError: No pull queue is called so; status 1.
    """
    found = known_queue(options["queue"])
    if found is None:
        name = options["queue"]
        near = did_you_mean(name, known_names())
        raise CommandError(
            f"No pull queue is called {name!r}.{shown(near)} A new one is made "
            f"by queue({name!r}) in Python, or SELECT pgqueue_declare_queue({name!r})."
        )
    return found


# Send ---------------------------------------------------------------------------------


# Of one statement; whichever comes first.
BATCH_MESSAGES, BATCH_BYTES = 1_000, 8_000_000


def _add_send(parser: Any) -> None:
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


def _send(options: dict[str, Any], out: Output) -> int:
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
    with transaction.atomic(using=get_settings().database):
        if key is not None:
            ids.append(queue.send(payloads[0], key=key, **said))
        else:
            for batch in batches:
                ids += queue.send_many(batch, **said)
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


# Receive ------------------------------------------------------------------------------


def _add_receive(parser: Any) -> None:
    """Declare what receive() takes, and whether that is all."""
    add_queue(parser)
    parser.add_argument(
        "-n",
        dest="limit",
        type=whole_number(RECEIVE_MAX),
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


def _receive(options: dict[str, Any], out: Output) -> int:
    """Receive once; print each with its receipt."""
    queue = the_queue(options)
    messages = queue.receive(
        options["limit"], wait=options["wait"], visibility=options["visibility"]
    )
    if out.as_json:
        out.json({"messages": [_message_facts(each) for each in messages]})
    else:
        for each in messages:
            out.json(_message_facts(each))
    if options["ack"] and messages:
        out.flush()
        stale = queue.ack(messages).stale
        if stale:
            out.note(f"Not acked, since they are not ours any more: {', '.join(stale)}")
            return EXIT_NOTHING
    return EXIT_DONE if messages else EXIT_NOTHING


def _message_facts(message: PullMessage) -> dict[str, Any]:
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


# Receipts -----------------------------------------------------------------------------


def receipt(text: str) -> str:
    """Read a receipt."""
    if not RECEIPT.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{in_error(text)} is no receipt as receive prints it, such as 4711:2"
        )
    return text


def _subcommand(
    told: str,
    done: str,
    verb: Callable[[PullQueue, dict[str, Any]], Answer],
    add: Callable[[Any], None] = lambda parser: None,
) -> Subcommand:
    """Return the subcommand that does *verb*; *done* is the word for its answer."""

    def add_arguments(parser: Any) -> None:
        add_queue(parser)
        parser.add_argument("receipts", nargs="+", type=receipt, metavar="RECEIPT")
        add(parser)

    def run(options: dict[str, Any], out: Output) -> int:
        answer = verb(the_queue(options), options)
        if out.as_json:
            out.json(answer._asdict())
        else:
            dead = f", {answer.dead:,} of them dead now" if answer.dead else ""
            many = "" if answer.done == 1 else "s"
            out.line(f"{answer.done:,} message{many} {done}{dead}.")
            for each in answer.stale:
                out.note(f"Not {each}: it has ended, or was received again.")
        return EXIT_NOTHING if answer.stale else EXIT_DONE

    return Subcommand(told, add_arguments, run)


ACK = _subcommand(
    "End messages that were received: they are done.",
    "acked",
    lambda queue, options: queue.ack(options["receipts"]),
)


def _add_nack(parser: Any) -> None:
    add_length(
        parser, "--delay", "Due again after so long (default: at once)",
        default=timedelta(0),
    )  # fmt: skip
    parser.add_argument(
        "--error", type=plain_text, metavar="TEXT", help="Why: kept with the message."
    )


NACK = _subcommand(
    "Give messages back that were received: they are due again.",
    "given back",
    lambda queue, options: queue.nack(
        options["receipts"], options["delay"], error=options["error"]
    ),
    _add_nack,
)


def _add_reject(parser: Any) -> None:
    parser.add_argument(
        "--reason", type=plain_text, metavar="TEXT", help="Why: kept with the message."
    )


REJECT = _subcommand(
    "Make messages that were received dead letters, at once.",
    "rejected",
    lambda queue, options: queue.reject(options["receipts"], options["reason"]),
    _add_reject,
)


def _add_extend(parser: Any) -> None:
    add_length(
        parser, "--visibility", "They stay ours for so long from now on", required=True
    )


EXTEND = _subcommand(
    "Keep messages that were received for longer.",
    "extended",
    lambda queue, options: queue.extend(options["receipts"], options["visibility"]),
    _add_extend,
)


SEND = Subcommand(
    "Send messages to a pull queue: JSON values, or a line of standard input each.",
    _add_send,
    _send,
)

RECEIVE = Subcommand(
    "Receive the next messages of a pull queue; prints a line of JSON each.",
    _add_receive,
    _receive,
)
