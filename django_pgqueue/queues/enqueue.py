"""
Enqueue: store jobs, in the caller's transaction.

The third hop of a job's life. Everything that can be wrong with a job was found
before (tasks/payload.py), so the caller's transaction stays usable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

# Rows per statement. Larger ones gain nothing and hold the caller longer.
BULK_ROWS_MAX = 5_000

# Locks: none that another enqueue waits for, except with a dedup key: a second job
# of the same key waits until the first one's transaction ends, and then conflicts.
# run_at is the caller's time, delay is counted from the database's clock; with
# neither, run_after stays NULL and the trigger is not called.
ENQUEUE = """
INSERT INTO pgqueue_job (queue, task, args, kwargs, headers, priority, max_attempts,
                         run_after, expires_at)
VALUES (%(queue)s, %(task)s, %(args)s::jsonb, %(kwargs)s::jsonb, %(headers)s::jsonb,
        %(priority)s, %(max_attempts)s,
        coalesce(%(run_at)s::timestamptz, clock_timestamp() + %(delay)s::interval),
        coalesce(%(expire_at)s::timestamptz,
                 clock_timestamp() + %(expire_in)s::interval))
RETURNING id
"""

# Locks: as ENQUEUE. The common case, without a time: it spares the server the
# expressions of ENQUEUE that would come out as NULL.
ENQUEUE_NOW = """
INSERT INTO pgqueue_job (queue, task, args, kwargs, headers, priority, max_attempts)
VALUES (%(queue)s, %(task)s, %(args)s::jsonb, %(kwargs)s::jsonb, %(headers)s::jsonb,
        %(priority)s, %(max_attempts)s)
RETURNING id
"""

# Locks: as ENQUEUE. One statement for a chunk: WITH ORDINALITY and ORDER BY, so that
# ids rise in the caller's order and RETURNING answers in it.
ENQUEUE_MANY = """
INSERT INTO pgqueue_job (queue, task, args, kwargs, headers, priority, max_attempts,
                         run_after, expires_at)
SELECT %(queue)s, %(task)s, item.args::jsonb, item.kwargs::jsonb, %(headers)s::jsonb,
       %(priority)s, %(max_attempts)s,
       coalesce(%(run_at)s::timestamptz, clock_timestamp() + %(delay)s::interval),
       coalesce(%(expire_at)s::timestamptz,
                clock_timestamp() + %(expire_in)s::interval)
  FROM unnest(%(args)s::text[], %(kwargs)s::text[])
       WITH ORDINALITY AS item(args, kwargs, place)
 ORDER BY item.place
RETURNING id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where, when and how often: what all jobs of one call share."""

    queue: str
    task: str
    headers: str  # JSON text.
    priority: int
    max_attempts: int
    run_at: datetime | None = None
    delay: timedelta | None = None
    expire_at: datetime | None = None
    expire_in: timedelta | None = None

    @property
    def has_time(self) -> bool:
        """Whether the jobs wait for a time, or expire at one."""
        times = (self.run_at, self.delay, self.expire_at, self.expire_in)
        return any(time is not None for time in times)

    def params(self) -> dict[str, Any]:
        """Return the values by the names that the statements use."""
        return {name: getattr(self, name) for name in self.__slots__}


def enqueue(cursor: Any, placement: Placement, *, args: str, kwargs: str) -> int:
    """
    Store one job and return its id: one round trip.

    Args:
        cursor: Django's or psycopg's; the caller commits.
        placement: Queue, task, priority, times.
        args: A JSON array as text.
        kwargs: A JSON object as text.
    """
    statement = ENQUEUE if placement.has_time else ENQUEUE_NOW
    cursor.execute(statement, {**placement.params(), "args": args, "kwargs": kwargs})
    job_id: int = cursor.fetchone()[0]
    return job_id


def enqueue_many(
    cursor: Any, placement: Placement, payloads: Sequence[tuple[str, str]]
) -> list[int]:
    """
    Store one job per (args, kwargs) and return their ids in the same order.

    One statement per BULK_ROWS_MAX rows. The caller opens the transaction that makes
    several statements all or nothing.
    """
    ids: list[int] = []
    params = placement.params()
    for start in range(0, len(payloads), BULK_ROWS_MAX):
        chunk = payloads[start : start + BULK_ROWS_MAX]
        params["args"] = [args for args, _ in chunk]
        params["kwargs"] = [kwargs for _, kwargs in chunk]
        cursor.execute(ENQUEUE_MANY, params)
        ids.extend(job_id for (job_id,) in cursor.fetchall())
    return ids
