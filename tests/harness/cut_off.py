"""What a test that was cut off leaves, and the next ones would fail by."""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

CANCEL_SECONDS_MAX = 5


def renewed(connection: BaseDatabaseWrapper) -> bool:
    """
    Give the next test a new connection, where this one is of no more use.

    It is closed where a pooler has taken its server away; and a time-out or Ctrl+C may
    come within a statement, whose end nobody waits for: all that follow would fail.

    Returns:
        Whether a statement was under way.
    """
    raw = connection.connection
    if raw is None:
        return False
    is_busy = raw.info.transaction_status == TransactionStatus.ACTIVE
    if is_busy:
        raw.cancel_safe(timeout=CANCEL_SECONDS_MAX)
    if is_busy or raw.closed:
        raw.close()
        connection.connect()
    return bool(is_busy)
