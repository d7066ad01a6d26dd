"""
Leased: which jobs workers hold just now, for people to look at.

As in a rescue (lease.py), the claim index finds them: a lease end is what visible_at
holds. Jobs that are scheduled for the same minutes stand between them, so each band is
read up to a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.bands import ALL_BANDS

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
    cursor.execute(
        LEASED,
        {
            "workers": list(workers),
            "lease": lease,
            "limit": limit,
            "rows": LINE_ROWS_MAX,
            "bands": BANDS_MAX,
        },
    )
    return [Leased(*row) for row in cursor.fetchall()]
