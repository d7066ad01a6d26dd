"""Inbox: messages from outside, each noted once."""

from __future__ import annotations

from django_pgqueue.postgres.cursor import Cursor, value

# Locks: those of sql/inbox.sql: it waits for whoever has noted the same message and has
# not committed yet.
NOTE = "SELECT pgqueue_inbox(%(source)s, %(external_id)s)"


def note(cursor: Cursor, source: str, external_id: str) -> bool:
    """
    Note a message from outside, and return whether it is new.

    Args:
        cursor: Inside the transaction of what the message leads to.
        source: Who has sent it.
        external_id: What that one calls it.
    """
    return bool(value(cursor, NOTE, source=source, external_id=external_id))
