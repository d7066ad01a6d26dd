"""
Clean-up: Django's connections of a thread, before and after each job.

A web request gets this from Django's own signals; a worker has no requests. A stale
connection is closed before a job uses it. One that a job left inside a transaction, or
whose session it has changed (SET, an advisory lock, a temporary table), is closed after
it, so that nothing leaks into the next job.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.db import connections, reset_queries
from django.db.backends.signals import connection_created
from psycopg.pq import TransactionStatus

from django_pgqueue.postgres import session

logger = logging.getLogger("django_pgqueue.worker")


class Opened(threading.local):
    """What this thread has opened, ever: connections.all() takes as long as a job."""

    def __init__(self) -> None:
        self.connections: list[Any] = []


opened = Opened()


def watch_connections() -> None:
    """Notice from now on what is done to the sessions of new connections."""
    connection_created.connect(_watch, dispatch_uid="django_pgqueue.cleanup")


def clean_connections() -> None:
    """
    Close what is stale, broken or inside a transaction, in this thread.

    Never raises: the outcome of the job that has just ended is still to be settled.
    """
    _clean_each(connections.all(initialized_only=True))


def clean_after_job() -> None:
    """
    Do the same for what was opened since watch_connections(), between two jobs.

    Most jobs of a short task open nothing, and then it costs nothing.
    """
    if opened.connections or settings.DEBUG:
        _clean_each(opened.connections)


def _clean_each(found: Iterable[Any]) -> None:
    for connection in found:
        try:
            _clean(connection)
        except Exception as error:
            logger.warning("closing    alias=%s error=%r", connection.alias, error)
            connection.connection = None
    if settings.DEBUG:
        reset_queries()


def _watch(sender: Any, connection: Any, **fields: Any) -> None:
    if not any(known is connection for known in opened.connections):
        opened.connections.append(connection)
    if connection.vendor == "postgresql" and hasattr(connection.connection, "info"):
        session.watch(connection.connection)


def _clean(connection: Any) -> None:
    if connection.connection is None:
        return
    if connection.execute_wrappers:
        connection.execute_wrappers.clear()
    if not connection.in_atomic_block and _is_idle(connection.connection):
        if _is_as_it_was(connection):
            _close_cursors(connection)
            connection.close_if_unusable_or_obsolete()
            return
        # Closed for good: a pool would lend it to somebody else as it is.
        connection.connection.close()
    # A task that opened a transaction by hand and forgot it: rolled back.
    connection.in_atomic_block = False
    connection.savepoint_ids = []
    connection.atomic_blocks = []
    connection.needs_rollback = False
    connection.run_on_commit = []
    connection.closed_in_transaction = False
    connection.close()


def _is_as_it_was(connection: Any) -> bool:
    """Whether a job left nothing in the session; see postgres/session.py."""
    watched = getattr(connection.connection, session.MARK, None)
    left = None if watched is None else watched.what_is_left(connection.connection)
    if left is not None:
        logger.debug("session    alias=%s replaced after: %s", connection.alias, left)
    return left is None


def _close_cursors(connection: Any) -> None:
    """Close what iterator() has left open, if it was called since the last time."""
    count = getattr(connection, "_named_cursor_idx", 0)
    watched = getattr(connection.connection, session.MARK, None)
    if watched is not None and count != watched.named_cursors:
        watched.named_cursors = count
        session.close_cursors(connection.connection)


def _is_idle(raw: object) -> bool:
    info = getattr(raw, "info", None)
    # Another engine than psycopg on another alias: Django's own check must do.
    return info is None or info.transaction_status == TransactionStatus.IDLE
