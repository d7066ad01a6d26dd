"""A sample subscription with a bound, for workers that import this module."""

from __future__ import annotations

from django_pgqueue import Backlog, Message, subscribe


@subscribe("naps", queue="sleepy", backlog=Backlog(10, on_full="pause"))
def on_nap(message: Message) -> int:
    """Tell which one it was given."""
    return message.id
