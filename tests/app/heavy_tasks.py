"""Sample handlers of large messages, for workers that import this module."""

from __future__ import annotations

from django_pgqueue import Message, subscribe
from django_pgqueue.topics.consume import consume


@subscribe("heavy", queue="heavy", ack_policy="on_success")
def on_heavy(message: Message) -> int:
    """Tell how long it was."""
    return len(message.payload)


@consume("heavy", group="readers", queue="heavy", start="earliest")
def read_heavy(messages: list[Message]) -> None:
    """Look at each of up to 500."""
    assert all(len(message.payload) == 1_000_000 for message in messages)
