"""
Health: what else the server does that slows a queue down or stops it.

Asked by the doctor, and by a worker whose NOTIFY is refused. A role that is no
superuser sees the rows of other roles in pg_stat_activity without their details; what
it may not see is left out.
"""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg

from django_pgqueue.postgres import wake
from django_pgqueue.postgres.cursor import Cursor, value

# Locks: none beyond ACCESS SHARE on catalogues; so have all of these.
CONNECTIONS = """
SELECT count(*) AS used,
       count(*) FILTER (WHERE application_name LIKE 'pgqueue %%') AS ours
  FROM pg_stat_activity WHERE backend_type = 'client backend'
"""

# What keeps vacuum from removing dead rows, by how many transactions: a session, a
# prepared transaction, a replication slot. Ordered by age, the oldest first.
HORIZON = """
SELECT kind, name, seconds, transactions FROM (
    SELECT 'session' AS kind,
           format('%%s of %%s, process %%s, %%s', coalesce(nullif(application_name, ''),
                  'a session'), coalesce(usename, '?'), pid, coalesce(state, '?'))
               AS name,
           extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds,
           age(backend_xmin) AS transactions
      FROM pg_stat_activity
     WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
       AND datname = current_database()
    UNION ALL
    SELECT 'prepared', gid, extract(epoch FROM clock_timestamp() - prepared)::float8,
           age(transaction)
      FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL
    SELECT 'slot', slot_name::text, NULL, age(xmin)
      FROM pg_replication_slots WHERE xmin IS NOT NULL
) held
 ORDER BY transactions DESC LIMIT 1
"""

PREPARED = """
SELECT count(*) AS transactions,
       extract(epoch FROM clock_timestamp() - min(prepared))::float8 AS seconds
  FROM pg_prepared_xacts WHERE database = current_database()
"""

NOTIFICATIONS = "SELECT pg_notification_queue_usage()"

CLOCK = "SELECT clock_timestamp()"

VACUUM = """
SELECT current_setting('autovacuum')::bool AS is_on, n_live_tup AS live,
       n_dead_tup AS dead,
       extract(epoch FROM clock_timestamp()
               - greatest(last_autovacuum, last_vacuum))::float8 AS seconds
  FROM pg_stat_user_tables WHERE relid = to_regclass('pgqueue_job')
"""

# An index that CREATE INDEX CONCURRENTLY or REINDEX CONCURRENTLY left half made.
INVALID_INDEXES = """
SELECT c.relname::text AS name FROM pg_index i
  JOIN pg_class c ON c.oid = i.indexrelid
  JOIN pg_class t ON t.oid = i.indrelid
 WHERE NOT (i.indisvalid AND i.indisready) AND t.relname LIKE 'pgqueue\\_%%'
   AND t.relnamespace = (SELECT relnamespace FROM pg_class
                          WHERE oid = to_regclass('pgqueue_job'))
 ORDER BY 1
"""


def notification_usage(cursor: Cursor) -> float:
    """Return how full the queue of notifications is, from 0 to 1."""
    share: float = value(cursor, NOTIFICATIONS)
    return share


def clock_skew(cursor: Cursor) -> tuple[float, float]:
    """
    Return how many seconds this machine's clock is ahead of the database's.

    And how many that may be wrong by: half of the round trip.
    """
    before, started = datetime.now(UTC), time.monotonic()
    theirs: datetime = value(cursor, CLOCK)
    round_trip = time.monotonic() - started
    ours = before.timestamp() + round_trip / 2
    return ours - theirs.timestamp(), round_trip / 2


def hears(
    listener: psycopg.Connection[Any],
    notifier: psycopg.Connection[Any],
    *,
    patience_seconds: float,
) -> float | None:
    """
    Listen on one connection, notify on the other; return the seconds until heard.

    None: nothing was heard in *patience_seconds*. Both must be in autocommit.
    """
    channel, token = f"pgqueue_doctor_{uuid4().hex}", uuid4().hex
    with listener.cursor() as cursor:
        wake.listen(cursor, [channel])
    started = time.monotonic()
    with notifier.cursor() as cursor:
        wake.prove(cursor, channel=channel, token=token)
    # Closed here, and not when the garbage is collected.
    with contextlib.closing(
        listener.notifies(timeout=patience_seconds, stop_after=1)
    ) as notices:
        for notice in notices:
            if notice.payload == token:
                return time.monotonic() - started
    return None
