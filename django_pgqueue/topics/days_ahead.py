"""
Days ahead: a publisher sees to the log's days before its transaction needs them.

The leader makes them two weeks ahead. Where none has led for that long, the first
message of a day makes its day, in its own transaction; so this looks an hour ahead at
least, and makes what is missing apart.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg

from django_pgqueue.log.days import has_days, make_days
from django_pgqueue.postgres.apart import make_apart

INTERVAL_SECONDS = 3_600.0

# By alias: when this process looks again.
_due_at: dict[str, float] = {}


def see_to_days(connection: Any) -> None:
    """
    Make the log's days where today's or tomorrow's is missing, once an hour.

    Args:
        connection: Django's. Outside of a transaction there is nothing to see to: what
            a publish makes is committed at once.
    """
    if not connection.in_atomic_block or connection.needs_rollback:
        return
    now = time.monotonic()
    if now < _due_at.get(connection.alias, 0.0):
        return
    _due_at[connection.alias] = now + INTERVAL_SECONDS
    connection.ensure_connection()
    try:
        # Not Django's cursor: it is no query of the application's.
        with psycopg.Cursor(connection.connection) as cursor:
            is_there = has_days(cursor)
    except psycopg.Error:
        return  # The publish meets the same, and tells.
    if not is_there:
        make_apart(connection.alias, make_days)
