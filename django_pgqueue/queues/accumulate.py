"""
Accumulate: store calls that wait for others of their key, and take them together.

Each call is a job of its own. It waits for its *window*: until `within` has passed
since it was stored, or until there are `size` of its queue, task and key. Whatever
makes a worker take one of them, a due one or the last of `size`, makes it *gather*
others: one run of the task gets them all.

No call waits for another caller's transaction: nothing is locked, and a row that is
not committed is neither counted nor gathered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from typing import Any

from django_pgqueue.bounds import ACCUMULATE_SIZE_MAX
from django_pgqueue.postgres.bulk import BULK_ROWS_MAX, Items, as_array, chunks
from django_pgqueue.postgres.cursor import Cursor, one_row
from django_pgqueue.queues.claim import LEASE_CANDIDATES, Claimed
from django_pgqueue.queues.enqueue import (
    Argument,
    Placement,
    Stored,
    enqueue_from_select,
)

# Both statements that look for calls compare rows, from one place of the index on
# (accumulate_key, task, queue, visible_at) to another: no other index has this order.
# With an equation for each column the planner may take any that begins with one of
# them, and statistics from before the first calls make it walk over a whole queue.

# How many calls of the key wait for their window to end, up to size - 1: those that
# nobody has ever taken and that have no time of their own. The latest first: what
# waits for its next attempt is walked over only where it stands between them.
WAITING = """
waiting AS MATERIALIZED (
    SELECT count(*) AS calls
      FROM (SELECT 1 FROM pgqueue_job j
             WHERE j.accumulate_key IS NOT NULL AND j.leased_by IS NULL
               AND (j.accumulate_key, j.task, j.queue, j.visible_at)
                   > (%(key)s::text, %(task)s, %(queue)s, statement_timestamp())
               AND (j.accumulate_key, j.task, j.queue, j.visible_at)
                   <= (%(key)s::text, %(task)s, %(queue)s,
                       statement_timestamp() + %(within)s::interval)
               AND j.deliveries = 0 AND j.run_after IS NULL
             ORDER BY j.accumulate_key DESC, j.task DESC, j.queue DESC,
                      j.visible_at DESC
             LIMIT %(size)s::bigint - 1) call)
"""

# What a row gets besides what every job gets. {place} is its place, from 1, among those
# that this statement stores. From the one that makes up `size` on all are due at once:
# so there is one that leads a run for as long as there are that many.
WINDOW = """
%(key)s, clock_timestamp() + CASE
    WHEN waiting.calls + {place} >= %(size)s::bigint THEN interval '0'
    ELSE %(within)s::interval END
"""

# Locks: none that another caller waits for, as ENQUEUE in enqueue.py. What other
# transactions have not committed is not counted.
ACCUMULATE = f"""
WITH {WAITING}
INSERT INTO pgqueue_job (queue, task, args, kwargs, headers, priority, max_attempts,
                         run_after, expires_at, accumulate_key, visible_at)
SELECT %(queue)s, %(task)s, %(args)s::jsonb, %(kwargs)s::jsonb, %(headers)s::jsonb,
       %(priority)s, %(max_attempts)s,
       coalesce(%(run_at)s::timestamptz, clock_timestamp() + %(delay)s::interval),
       coalesce(%(expire_at)s::timestamptz,
                clock_timestamp() + %(expire_in)s::interval),
       {WINDOW.format(place=1)}
  FROM waiting
RETURNING id
"""

# Locks: as ACCUMULATE. Otherwise as ENQUEUE_MANY; counted once for all its rows.
ACCUMULATE_MANY = f"""
WITH {WAITING}
INSERT INTO pgqueue_job (queue, task, args, kwargs, headers, priority, max_attempts,
                         run_after, expires_at, accumulate_key, visible_at)
SELECT %(queue)s, %(task)s,
       CASE WHEN jsonb_typeof(item.value) = 'array' THEN item.value ELSE '[]' END,
       CASE WHEN jsonb_typeof(item.value) = 'array' THEN '{{}}' ELSE item.value END,
       %(headers)s::jsonb, %(priority)s, %(max_attempts)s,
       coalesce(%(run_at)s::timestamptz, clock_timestamp() + %(delay)s::interval),
       coalesce(%(expire_at)s::timestamptz,
                clock_timestamp() + %(expire_in)s::interval),
       {WINDOW.format(place="item.place")}
  FROM jsonb_array_elements(%(items)s::jsonb) WITH ORDINALITY AS item(value, place),
       waiting
 ORDER BY item.place
RETURNING id
"""

# Locks: as ACCUMULATE. Otherwise as ENQUEUE_FROM_SELECT.
INTO_FROM_SELECT = f"""
{WAITING}, stored AS (
    INSERT INTO pgqueue_job (queue, task, kwargs, headers, priority, max_attempts,
                             run_after, expires_at, accumulate_key, visible_at)
    SELECT %(queue)s, %(task)s, item.kwargs, %(headers)s::jsonb, %(priority)s,
           %(max_attempts)s,
           coalesce(%(run_at)s::timestamptz, clock_timestamp() + %(delay)s::interval),
           coalesce(%(expire_at)s::timestamptz,
                    clock_timestamp() + %(expire_in)s::interval),
           {WINDOW.format(place="item.place")}
      FROM item, waiting
     WHERE (SELECT bytes FROM largest) <= %(payload_bytes_max)s
     ORDER BY item.place
    RETURNING id
)
"""
PLACEHOLDER = re.compile(r"%\((\w+)\)s")
# The caller's query has places, so all have.
ACCUMULATE_FROM_SELECT = (
    """
WITH item AS MATERIALIZED (
    SELECT jsonb_build_object({arguments}) AS kwargs, row_number() OVER () AS place
      FROM ({query}) AS source({columns})
), largest AS (
    SELECT max(octet_length(kwargs::text)) AS bytes FROM item
),"""
    + PLACEHOLDER.sub("%s", INTO_FROM_SELECT)
    + """
SELECT (SELECT count(*) FROM stored), coalesce(largest.bytes, 0),
       CASE WHEN %s THEN (SELECT array_agg(id ORDER BY id) FROM stored) END
  FROM largest
"""
)
FROM_SELECT_NAMES = PLACEHOLDER.findall(INTO_FROM_SELECT)[:-1]

# Calls of a key that nobody has taken: those that are due, and those that wait for
# their window and for nothing else. One of a process that died runs by itself, and
# who gathers nothing is not gathered. A paused queue gives nothing.
# Locks: as CLAIM in claim.py: row locks, for the statement, and never a wait.
GATHER = f"""
WITH candidate AS MATERIALIZED (
    SELECT j.id, j.visible_at AS due_at,
           j.cancel_requested_at IS NOT NULL AS cancel_requested
      FROM pgqueue_job j
     WHERE j.accumulate_key IS NOT NULL AND j.leased_by IS NULL
       AND (j.accumulate_key, j.task, j.queue) >= (%(key)s::text, %(task)s, %(queue)s)
       AND (j.accumulate_key, j.task, j.queue, j.visible_at)
           <= (%(key)s::text, %(task)s, %(queue)s,
               statement_timestamp() + %(within)s::interval)
       AND (j.visible_at <= statement_timestamp()
            OR (j.deliveries = 0 AND j.run_after IS NULL))
       AND NOT j.runs_alone
       AND NOT EXISTS (SELECT 1 FROM pgqueue_queue q
                        WHERE q.name = %(queue)s AND q.paused_at IS NOT NULL)
     ORDER BY j.accumulate_key, j.task, j.queue, j.visible_at LIMIT %(limit)s
       FOR UPDATE OF j SKIP LOCKED),
{LEASE_CANDIDATES}
"""

BY_ID = attrgetter("id")


@dataclass(frozen=True, slots=True)
class Window:
    """How long a call waits for others, and for how many."""

    key: str
    size: int  # 1 to ACCUMULATE_SIZE_MAX.
    within: timedelta


def accumulate(
    cursor: Cursor, placement: Placement, window: Window, *, args: str, kwargs: str
) -> int:
    """Store one call and return its id: one round trip; as enqueue()."""
    params = {**_params(placement, window), "args": args, "kwargs": kwargs}
    cursor.execute(ACCUMULATE, params)
    job_id: int = one_row(cursor)[0]
    return job_id


def accumulate_many(
    cursor: Cursor, placement: Placement, window: Window, items: Sequence[Items]
) -> list[int]:
    """Store one call per argument in *items*; as enqueue_many()."""
    ids: list[int] = []
    params = _params(placement, window)
    for chunk in chunks(items, BULK_ROWS_MAX):
        params["items"] = as_array(chunk)
        cursor.execute(ACCUMULATE_MANY, params)
        ids.extend(job_id for (job_id,) in cursor.fetchall())
    return ids


def accumulate_from_select(
    cursor: Cursor,
    placement: Placement,
    *,
    window: Window,
    arguments: Sequence[Argument],
    query: str,
    params: Sequence[Any],
    payload_bytes_max: int,
    with_ids: bool,
) -> Stored:
    """Store one call per row of *query*; as enqueue_from_select()."""
    values = _params(placement, window)
    return enqueue_from_select(
        cursor,
        placement,
        arguments=arguments,
        query=query,
        params=params,
        payload_bytes_max=payload_bytes_max,
        with_ids=with_ids,
        statement=ACCUMULATE_FROM_SELECT,
        placed=[values[name] for name in FROM_SELECT_NAMES],
    )


def gather(
    cursor: Cursor,
    job: Claimed,
    *,
    within: timedelta,
    worker: str,
    limit: int,
    lease: timedelta,
) -> list[Claimed]:
    """
    Lease up to *limit* more calls of the key of *job* to *worker*; never waits.

    Args:
        cursor: An open cursor, Django's or psycopg's. The caller commits.
        job: A call that *worker* has leased.
        within: Those whose window ends no later than this from now.
        worker: The name written to the rows; at most 100 characters.
        limit: Jobs, up to ACCUMULATE_SIZE_MAX.
        lease: How long they stay ours without a heartbeat.

    Returns:
        Them by their ids; empty, too, for a job that runs alone or has no key.

    Raises:
        ValueError: *limit* is out of range.
    """
    if not 0 <= limit <= ACCUMULATE_SIZE_MAX:
        raise ValueError(f"limit must be from 0 to {ACCUMULATE_SIZE_MAX}, not {limit}")
    if job.accumulate_key is None or job.runs_alone or not limit:
        return []
    cursor.execute(
        GATHER,
        {
            "key": job.accumulate_key,
            "task": job.task,
            "queue": job.queue,
            "within": within,
            "worker": worker,
            "limit": limit,
            "lease": lease,
        },
    )
    return sorted(map(Claimed._make, cursor.fetchall()), key=BY_ID)


def _params(placement: Placement, window: Window) -> dict[str, Any]:
    return {
        **placement.params(),
        "key": window.key,
        "size": window.size,
        "within": window.within,
    }
