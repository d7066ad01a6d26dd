"""
Sample groups. Each reads a topic of its own name, by workers of that queue alone.

What a handler does with a message stands in its payload: {"do": "fail"}. What it took
is in the ledger, and with a group that is atomic in a row for each message.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from django_pgqueue import Cancel, Message, Reject, Retry, RetryLater, Snooze
from django_pgqueue.topics.consume import consume
from tests.app.models import Effect
from tests.app.tasks import Unlucky
from tests.harness import ledger

SOON = Retry(max_attempts=3, backoff="constant", base=0.01)


def act(message: Message) -> None:
    """Do what a payload says."""
    payload: Any = message.payload
    what = payload.get("do") if isinstance(payload, dict) else None
    if what == "fail":
        raise Unlucky("bad luck")
    if what == "fail once" and not ledger_has(message):
        ledger.write("failed", message.id)
        raise Unlucky("bad luck")
    if what == "reject":
        raise Reject("never")
    if what == "cancel":
        raise Cancel
    if what == "snooze" and not ledger_has(message):
        ledger.write("failed", message.id)
        raise Snooze(seconds=0.05)
    if what == "later" and not ledger_has(message):
        ledger.write("failed", message.id)
        raise RetryLater(seconds=0.05)
    if what == "wait":
        wait_for_file(Path(payload["gate"]))
    if what == "sleep in C" and not ledger_has(message):
        ledger.write("failed", message.id)
        time.sleep(payload["seconds"])
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)


def ledger_has(message: Message) -> bool:
    """Whether it has failed before, in whatever process."""
    known = ledger.Ledger(Path(os.environ[ledger.PATH]))
    return any(entry.job == message.id for entry in known.entries("failed"))


def wait_for_file(path: Path) -> None:
    """Wait in Python code, which a TaskTimeout ends."""
    pause = threading.Event()
    while not path.exists():
        pause.wait(0.005)


def take(messages: list[Message]) -> None:
    """Note a batch, and do what its messages say."""
    first = messages[0]
    ledger.write(
        "batch", first.id, note=[first.partition, [each.id for each in messages]]
    )
    for message in messages:
        act(message)
    ledger.write("done", first.id, note=[each.id for each in messages])


@consume("plain", group="g", start="earliest", batch=10, retries=SOON, queue="plain")
def plain(messages: list[Message]) -> None:
    """Take at least once."""
    take(messages)


@consume("exact", group="g", start="earliest", batch=10, atomic=True, queue="exact",
         retries=SOON, lease="20s")  # fmt: skip
def exact(messages: list[Message]) -> None:
    """Write a row for each message, exactly once."""
    Effect.objects.bulk_create(
        Effect(job=message.id, note=str(message.key)) for message in messages
    )
    take(messages)


@consume("shares", group="g", start="earliest", batch=5, atomic=True, queue="shares",
         readers=2, lease="20s")  # fmt: skip
def shares(messages: list[Message]) -> None:
    """Write a row for each message, by several readers."""
    Effect.objects.bulk_create(
        Effect(job=message.id, note=str(message.key)) for message in messages
    )
    take(messages)


@consume("hangs", group="g", start="earliest", queue="hangs", lease="1s", retries=SOON)
def hangs(messages: list[Message]) -> None:
    """Have a second for a batch."""
    take(messages)


@consume("stuck", group="g", start="earliest", atomic=True, queue="stuck", lease="1s",
         retries=SOON)  # fmt: skip
def stuck(messages: list[Message]) -> None:
    """Have a second for a batch and its transaction."""
    Effect.objects.bulk_create(
        Effect(job=message.id, note=str(message.key)) for message in messages
    )
    take(messages)


@consume("halts", group="g", start="earliest", on_error="halt", retries=SOON,
         queue="halts")  # fmt: skip
def halts(messages: list[Message]) -> None:
    """Stop at a bad message."""
    take(messages)


@consume("odd", group="g", start="earliest", where={"odd": True}, queue="odd", batch=3)
async def odd(messages: list[Message]) -> None:
    """Take some messages, in an event loop."""
    take(messages)


@consume("firsts", group="g", start="earliest", ack_policy="first", queue="firsts",
         batch=2)  # fmt: skip
def firsts(messages: list[Message]) -> None:
    """Take each message once, or not at all."""
    take(messages)


@consume("rejects", group="g", start="earliest", ack_policy="reject_on_error",
         queue="rejects")  # fmt: skip
def rejects(messages: list[Message]) -> None:
    """Try nothing twice."""
    take(messages)
