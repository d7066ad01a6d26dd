"""
Workers: their rows, their heartbeat, and which of them leads.

The rows serve people and the election. No job depends on them: a lease carries its own
end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta

from django_pgqueue.postgres import keys
from django_pgqueue.postgres.cursor import Cursor, one_row

# Locks: a row lock on the worker's own row.
REGISTER = """
INSERT INTO pgqueue_worker (name, hostname, pid, queues, threads, async_slots, version)
VALUES (%(name)s, %(hostname)s, %(pid)s, %(queues)s::jsonb, %(threads)s,
        %(async_slots)s, %(version)s)
ON CONFLICT (name) DO UPDATE SET heartbeat_at = statement_timestamp()
"""

HEARTBEAT = """
UPDATE pgqueue_worker SET heartbeat_at = statement_timestamp() WHERE name = %(name)s
RETURNING name
"""

# Locks: an advisory lock for the statement's transaction; whoever does not get it at
# once is not the leader this time. The lock makes "nobody leads" and "now I lead" one
# step. Two statements in one transaction: the second sees what the last leader wrote.
LOCK = f"SELECT pg_try_advisory_xact_lock(%(class)s, {keys.INSTALLATION})"
LEAD = """
UPDATE pgqueue_worker SET leader_until = statement_timestamp() + %(term)s::interval
 WHERE name = %(name)s
   AND NOT EXISTS (SELECT 1 FROM pgqueue_worker other
                    WHERE other.name <> %(name)s
                      AND other.leader_until > statement_timestamp())
RETURNING name
"""

FORGET = "DELETE FROM pgqueue_worker WHERE name = ANY(%(names)s::text[])"


def register(
    cursor: Cursor,
    *,
    name: str,
    hostname: str,
    pid: int,
    queues: Sequence[str],
    threads: int,
    async_slots: int = 0,
    version: str,
) -> None:
    """Write the row of a worker process that is about to claim."""
    cursor.execute(
        REGISTER,
        {
            "name": name,
            "hostname": hostname,
            "pid": pid,
            "queues": json.dumps(list(queues)),
            "threads": threads,
            "async_slots": async_slots,
            "version": version,
        },
    )


def heartbeat(cursor: Cursor, *, name: str) -> bool:
    """Say that the worker lives; False when its row has been purged."""
    cursor.execute(HEARTBEAT, {"name": name})
    return cursor.fetchone() is not None


def lead(cursor: Cursor, *, name: str, term: timedelta) -> bool:
    """
    Become or stay the leader for *term*; False when another worker leads.

    Call it inside a transaction. Everything a leader does is right with two of them:
    the election only avoids noise.
    """
    cursor.execute(LOCK, {"class": keys.LEADER})
    if not one_row(cursor)[0]:
        return False
    cursor.execute(LEAD, {"name": name, "term": term})
    return cursor.fetchone() is not None


def forget(cursor: Cursor, names: Sequence[str]) -> None:
    """Delete the rows of workers that have stopped."""
    cursor.execute(FORGET, {"names": list(names)})
