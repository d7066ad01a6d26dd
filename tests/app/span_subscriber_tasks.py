"""Sample tasks that take messages of traces; workers that are told to load this."""

from __future__ import annotations

import logging

from django_pgqueue import Message, consume, subscribe
from tests.app import tasks


@subscribe("traced")
def takes(message: Message) -> None:
    """Take a message as a job."""


@consume("batched", group="g", start="earliest", batch=10)
def reads(messages: list[Message]) -> None:
    """Take many messages at once."""
    logging.getLogger("shop").info("said %d", len(messages))
    for message in messages:
        tasks.noop.delay(message.payload["name"])
