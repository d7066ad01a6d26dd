"""
Leaks: what one job can leave behind for the next, in a connection or in a process.

``leave()`` leaves it, ``found()`` looks for it. What a process was like is remembered
when the worker starts, before any job runs.
"""

from __future__ import annotations

import contextlib
import locale
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from django.db import DataError
from psycopg.pq import TransactionStatus

# How many of a thing one job leaves.
PIECES = 100

# A job that changes its process takes less, and is cleaned up after at once.
NEIGHBOUR_SECONDS = 0.5

_cwd = os.getcwd()  # noqa: PTH109  # As a job changes it, as text.
_recursion_limit = sys.getrecursionlimit()
_locale = locale.setlocale(locale.LC_NUMERIC)

SESSION = """
SELECT name, setting, reset_val FROM pg_settings
 WHERE source = 'session' AND setting IS DISTINCT FROM reset_val
   AND name NOT IN ('application_name', 'client_encoding', 'TimeZone')
"""

HELD = """
SELECT 'advisory locks', count(*) FROM pg_locks
 WHERE locktype = 'advisory' AND pid = pg_backend_pid()
UNION ALL SELECT 'temporary tables', count(*) FROM pg_class
 WHERE relpersistence = 't' AND relkind = 'r'
   AND relnamespace = pg_my_temp_schema()
UNION ALL SELECT 'cursors', count(*) FROM pg_cursors WHERE name LIKE 'left%'
UNION ALL SELECT 'prepared statements', count(*) FROM pg_prepared_statements
 WHERE name LIKE 'left%'
UNION ALL SELECT 'channels', count(*) FROM pg_listening_channels()
UNION ALL SELECT 'another role', (current_user <> session_user)::int
"""


def found(connection: Any) -> Iterator[str]:
    """Say what an earlier job has left, in this thread's connection and process."""
    connection.ensure_connection()
    raw = connection.connection
    if connection.in_atomic_block or not connection.get_autocommit() or _is_open(raw):
        yield "a transaction is open"
        return
    with connection.cursor() as cursor:
        cursor.execute(SESSION)
        for name, setting, usual in cursor.fetchall():
            yield f"{name} is {setting}, not {usual}"
        cursor.execute("SHOW timezone")
        if cursor.fetchone() != ("UTC",):
            yield "the time zone of the session"
        cursor.execute(HELD)
        for what, count in cursor.fetchall():
            if count:
                yield f"{count} {what}"
    seen = set(_in_process())
    if seen:
        # A neighbour may be at it in this moment; what it leaves is still there later.
        time.sleep(NEIGHBOUR_SECONDS)
        yield from sorted(seen & set(_in_process()))


def _in_process() -> Iterator[str]:
    if os.getcwd() != _cwd:  # noqa: PTH109
        yield "the working directory"
    if sys.getrecursionlimit() != _recursion_limit:
        yield "the recursion limit"
    if locale.setlocale(locale.LC_NUMERIC) != _locale:
        yield "the locale"
    if signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0):
        yield "an alarm"


def _is_open(raw: Any) -> bool:
    status: TransactionStatus = raw.info.transaction_status
    return status != TransactionStatus.IDLE


# What leaves each of these behind; and "autocommit", which is Django's to change.
STATEMENTS = {
    "transaction": ["BEGIN", "SELECT count(*) FROM pgqueue_job"],
    "aborted": ["BEGIN", "SELECT 1 / 0"],
    "cursors": [
        f"DECLARE left_{n} CURSOR WITH HOLD FOR SELECT 1" for n in range(PIECES)
    ],
    "temporary_tables": [f"CREATE TEMPORARY TABLE left_{n} ()" for n in range(PIECES)],
    "advisory_locks": [
        f"SELECT pg_advisory_lock_shared(4711, n) FROM generate_series(1, {PIECES}) n"
    ],
    "prepared": [f"PREPARE left_{n} AS SELECT 1" for n in range(PIECES)],
    "settings": [
        "SET search_path TO pg_catalog",
        "SET statement_timeout TO '10s'",
        "SET default_transaction_isolation TO 'serializable'",
        "SET TIME ZONE 'Pacific/Apia'",
    ],
    "role": ["SET ROLE pg_monitor"],
    "listen": ["LISTEN left_behind"],
}
LITTER = (*STATEMENTS, "autocommit")


def leave(how: str, connection: Any) -> None:
    """Leave one kind of litter behind in the connection."""
    if how == "autocommit":
        connection.set_autocommit(False)
        return
    with contextlib.suppress(DataError), connection.cursor() as cursor:
        for statement in STATEMENTS[how]:
            cursor.execute(statement)
