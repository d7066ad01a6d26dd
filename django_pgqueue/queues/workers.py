"""
Workers: their rows, their heartbeat, and which of them leads.

The rows serve people and the election. No job depends on them: a lease carries its own
end.

Leased: which jobs workers hold just now, for people to look at.

As in a rescue (lease.py), the claim index finds them: a lease end is what visible_at
holds. Jobs that are scheduled for the same minutes stand between them, so each band is
read up to a limit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django_pgqueue.postgres import keys
from django_pgqueue.postgres.cursor import Cursor, has_row, one_row, rows
from django_pgqueue.queues.bands import ALL_BANDS

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
    return has_row(cursor, HEARTBEAT, name=name)


def lead(cursor: Cursor, *, name: str, term: timedelta) -> bool:
    """
    Become or stay the leader for *term*; False when another worker leads.

    Call it inside a transaction. Everything a leader does is right with two of them:
    the election only avoids noise.
    """
    cursor.execute(LOCK, {"class": keys.LEADER})
    if not one_row(cursor)[0]:
        return False
    return has_row(cursor, LEAD, name=name, term=term)


def forget(cursor: Cursor, names: Sequence[str]) -> None:
    """Delete the rows of workers that have stopped."""
    cursor.execute(FORGET, {"names": list(names)})


# Rows read of each band, and bands, that is priorities of queues, read at all.
LINE_ROWS_MAX = 2_000
BANDS_MAX = 500

# Locks: none. OFFSET 0: see RESCUE in lease.py.
LEASED = f"""
WITH RECURSIVE {ALL_BANDS}
SELECT near.id, near.task, near.queue, near.leased_by, near.leased_at
  FROM (SELECT queue, priority FROM band LIMIT %(bands)s) band
 CROSS JOIN LATERAL (
       SELECT j.id, j.task, j.queue, j.leased_by, j.leased_at FROM pgqueue_job j
        WHERE j.queue = band.queue AND j.priority = band.priority
          AND j.visible_at > statement_timestamp()
          AND j.visible_at <= statement_timestamp() + %(lease)s::interval
        ORDER BY j.visible_at LIMIT %(rows)s OFFSET 0) near
 WHERE near.leased_by = ANY(%(workers)s::text[])
 ORDER BY near.leased_at LIMIT %(limit)s
"""


class Leased(NamedTuple):
    """A job that a worker holds."""

    id: int
    task: str
    queue: str
    worker: str
    leased_at: datetime | None

    @property
    def title(self) -> str:
        """The job in a word: shop.tasks.send #17."""
        return f"{self.task} #{self.id}"


def leased(
    cursor: Cursor, *, workers: Sequence[str], lease: timedelta, limit: int
) -> list[Leased]:
    """
    Return jobs that *workers* hold, the ones held longest first.

    Args:
        cursor: An open cursor.
        workers: Their names.
        lease: How far ahead a lease can end; those that end later are not found.
        limit: How many at most.
    """
    return rows(
        Leased,
        cursor,
        LEASED,
        workers=list(workers),
        lease=lease,
        limit=limit,
        rows=LINE_ROWS_MAX,
        bands=BANDS_MAX,
    )
