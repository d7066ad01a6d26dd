"""
Clean-up: Django's connections of a thread, before and after each job.

A web request gets this from Django's own signals; a worker has no requests. A stale
connection is closed before a job uses it, and one that a job left inside a transaction
is closed after it, so that nothing leaks into the next job.
"""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.db import connections, reset_queries
from psycopg.pq import TransactionStatus

logger = logging.getLogger("django_pgqueue.worker")


def clean_connections() -> None:
    """
    Close what is stale, broken or inside a transaction, in this thread.

    Never raises: the outcome of the job that has just ended is still to be settled.
    """
    for connection in connections.all(initialized_only=True):
        try:
            _clean(connection)
        except Exception as error:
            logger.warning("closing    alias=%s error=%r", connection.alias, error)
            connection.connection = None
    if settings.DEBUG:
        reset_queries()


def _clean(connection: Any) -> None:
    if connection.connection is None:
        return
    if not connection.in_atomic_block and _is_idle(connection.connection):
        connection.close_if_unusable_or_obsolete()
        return
    # A task that opened a transaction by hand and forgot it: rolled back.
    connection.in_atomic_block = False
    connection.savepoint_ids = []
    connection.atomic_blocks = []
    connection.needs_rollback = False
    connection.run_on_commit = []
    connection.closed_in_transaction = False
    connection.close()


def _is_idle(raw: object) -> bool:
    info = getattr(raw, "info", None)
    # Another engine than psycopg on another alias: Django's own check must do.
    return info is None or info.transaction_status == TransactionStatus.IDLE
