"""pgqueue ack, nack, reject, extend: what becomes of messages that were received."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django_pgqueue.exceptions import shown
from django_pgqueue.management.cli.output import (
    EXIT_DONE,
    EXIT_NOTHING,
    Output,
    Subcommand,
)
from django_pgqueue.management.cli.pull_queue import add_length, add_queue, the_queue
from django_pgqueue.management.cli.words import plain_text
from django_pgqueue.pull.queue import PullQueue
from django_pgqueue.queues.pull import RECEIPT, Answer


def receipt(text: str) -> str:
    """Read a receipt."""
    if not RECEIPT.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is no receipt as receive prints it, such as 4711:2"
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
