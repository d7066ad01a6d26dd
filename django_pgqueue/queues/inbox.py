"""Inbox: messages from outside, each noted once."""

from __future__ import annotations

from datetime import timedelta

from django_pgqueue.postgres.cursor import Cursor, one_row
from django_pgqueue.queues.purge import PURGE_ROWS_MAX, Purged

# Locks: those of sql/inbox.sql: it waits for whoever has noted the same message and has
# not committed yet.
NOTE = "SELECT pgqueue_inbox(%(source)s, %(external_id)s)"

# Locks: row locks on one batch.
PURGE = """
WITH purged AS (
    DELETE FROM pgqueue_inbox WHERE id = ANY(ARRAY(
        SELECT id FROM pgqueue_inbox
         WHERE received_at >= coalesce(%(floor)s::timestamptz, '-infinity')
           AND received_at < statement_timestamp() - %(keep)s::interval
         ORDER BY received_at LIMIT %(limit)s))
    RETURNING received_at)
SELECT count(*), max(received_at) FROM purged
"""


def note(cursor: Cursor, source: str, external_id: str) -> bool:
    """
    Note a message from outside, and return whether it is new.

    Args:
        cursor: Inside the transaction of what the message leads to.
        source: Who has sent it.
        external_id: What that one calls it.
    """
    cursor.execute(NOTE, {"source": source, "external_id": external_id})
    return bool(one_row(cursor)[0])


def purge(cursor: Cursor, *, keep: timedelta, floor: object = None) -> Purged:
    """Delete one batch of what has come in longer ago than *keep*."""
    params = {"keep": keep, "floor": floor, "limit": PURGE_ROWS_MAX}
    cursor.execute(PURGE, params)
    return Purged(*one_row(cursor))
