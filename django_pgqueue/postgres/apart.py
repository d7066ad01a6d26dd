"""
Apart: days are made on a connection of their own, and not in the caller's transaction.

Who makes a day keeps others from making it until his transaction ends, and nobody sees
it before. In a request that goes on for a minute, everybody who needs the day would
wait for that minute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import date
from typing import Any

import psycopg

from django_pgqueue.postgres.connect import connect

logger = logging.getLogger("django_pgqueue")

# How long it waits for who makes days: it may be the caller's own transaction, which
# would wait for it in turn.
PATIENCE_SECONDS = 2

# Locks: none. Until the transaction ends.
PATIENCE = "SELECT set_config('lock_timeout', %(timeout)s, true)"


def make_apart(alias: str, make: Callable[[Any], list[date]]) -> list[date]:
    """
    Make days and commit them; return those that were missing.

    None of them if that fails, which is logged: the caller can still make them itself.

    Args:
        alias: A key of DATABASES.
        make: Makes days, such as LOG.make() of day_tables.py.
    """
    try:
        with (
            connect(alias, name="pgqueue days") as connection,
            connection.transaction(),
            connection.cursor() as cursor,
        ):
            cursor.execute(PATIENCE, {"timeout": f"{PATIENCE_SECONDS * 1000:.0f}ms"})
            return make(cursor)
    except psycopg.Error as error:
        logger.warning("days       alias=%s cannot be made apart: %s", alias, error)
        return []
