"""
Stats: how many jobs a queue has in each state, counted up to a limit.

A count is for people: "10,000 and more" tells an operator as much as 1,204,551, and
costs the same in every queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from django_pgqueue.postgres.cursor import Cursor, column
from django_pgqueue.queues import depth, suspects
from django_pgqueue.queues.bands import BANDS_OF_QUEUES, LIVE_QUEUES
from django_pgqueue.queues.claim import IS_PAUSED

# Rows looked at per queue and kind, unless the caller says otherwise.
COUNT_MAX = 10_000

# With many queues each is counted less far, so that all of them together cost no more
# than this many rows of a kind; but each at least this far.
ROWS_MAX = 200_000
COUNT_MIN = 100

NO_LIMITS: Mapping[str, int] = MappingProxyType({})

# Locks: none. Every queue that has a live job, a dead letter or a row of its own, each
# found by a loose index scan.
NAMES = f"""
WITH RECURSIVE {LIVE_QUEUES},
dead AS (
    (SELECT queue FROM pgqueue_dead_letter ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT next.queue FROM dead
     CROSS JOIN LATERAL (
           SELECT d.queue FROM pgqueue_dead_letter d WHERE d.queue > dead.queue
            ORDER BY d.queue LIMIT 1) next
)
SELECT queue FROM live UNION SELECT queue FROM dead
UNION SELECT name FROM pgqueue_queue
"""

# Locks: none. One row per band, a priority of a queue; each of its three ranges of the
# index pgqueue_job_claim is read up to the limit: due, later, parked.
BANDS = f"""
WITH RECURSIVE {BANDS_OF_QUEUES}
SELECT band.queue, ready.jobs, later.running, later.retrying,
       later.jobs - later.running - later.retrying, parked.jobs, later.jobs,
       extract(epoch FROM statement_timestamp() - ready.oldest)::float8
  FROM band
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs, min(due.visible_at) AS oldest FROM (
              SELECT j.visible_at FROM pgqueue_job j
               WHERE j.queue = band.queue AND j.priority = band.priority
                 AND j.visible_at <= statement_timestamp()
               ORDER BY j.visible_at LIMIT %(limit)s) due) ready
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs, count(waiting.leased_by) AS running,
              count(*) FILTER (WHERE waiting.leased_by IS NULL
                                 AND waiting.attempt > 0) AS retrying
         FROM (SELECT j.leased_by, j.attempt FROM pgqueue_job j
                WHERE j.queue = band.queue AND j.priority = band.priority
                  AND j.visible_at > statement_timestamp()
                ORDER BY j.visible_at LIMIT %(limit)s) waiting) later
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs FROM (
              SELECT 1 FROM pgqueue_job j
               WHERE j.queue = band.queue AND j.priority = band.priority
                 AND j.visible_at IS NULL LIMIT %(limit)s) held) parked
"""

# Locks: none. What stands in each queue's own row, and its dead letters up to the
# limit. For a queue that has a good part of them the planner reads the table until it
# has met enough, else the index pgqueue_dead_letter_queue. In the order of that index
# it sorted all of a table that was never analysed: 5 s for half a million, against 0.3.
# A pause that has ended by itself is none.
QUEUES = f"""
SELECT asked.name, dead.letters, held.paused_at, held.paused_until, held.paused_by,
       held.pause_reason,
       extract(epoch FROM held.paused_until - statement_timestamp())::float8,
       q.concurrency, q.rate_spacing, q.rate_burst, coalesce(q.kind, 'tasks')
  FROM unnest(%(queues)s::text[]) AS asked(name)
  LEFT JOIN pgqueue_queue q ON q.name = asked.name
  LEFT JOIN LATERAL (
       SELECT q.paused_at, q.paused_until, q.paused_by, q.pause_reason
        WHERE {IS_PAUSED}) held ON true
 CROSS JOIN LATERAL (
       SELECT count(*) AS letters FROM (
              SELECT 1 FROM pgqueue_dead_letter d WHERE d.queue = asked.name
               LIMIT %(limit)s) counted) dead
"""


# What an operator has said, by the names of attributes.
SAID = (
    *("paused_at", "paused_until", "paused_by", "pause_reason", "pause_seconds"),
    *("concurrency", "rate_spacing", "rate_burst", "kind"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """
    One queue: its jobs by state, and whether it is paused.

    Attributes:
        name: Of the queue.
        ready: Due now; those of workers whose lease has lapsed are among them.
        alone: Of those, how many wait to run alone, since their process has died.
        scheduled: Never tried, waiting for their time.
        running: Under a lease.
        retrying: Failed, waiting for their next attempt.
        parked: Waiting for something that is not time.
        dead: Dead letters.
        oldest_ready_seconds: How long the oldest ready job has been due; None: none is.
        paused_at: None: it is not paused, or no more.
        paused_until: When that ends by itself; None: it does not.
        paused_by: Who paused it, if that was said.
        pause_reason: Why, if that was said.
        pause_seconds: Until the pause ends by itself; None: it does not.
        concurrency: How many jobs an operator lets run at a time; None: nobody has
            said so, and the settings hold.
        rate_spacing: Seconds from one job to the next, in the same way.
        rate_burst: How many may be ahead of that.
        kind: "tasks"; or "pull", whose jobs are messages: running means received.
        count_max: How far each number was counted; one that is equal to it means "this
            many, or more".
        depth: How many live jobs it holds, of a queue with a limit; one more than that
            is that many or more.
        depth_max: The limit.
        is_partial: More jobs wait for a time than were looked at, the earliest first:
            running, retrying and scheduled may each be larger than they are here.
    """

    name: str
    ready: int = 0
    alone: int = 0
    scheduled: int = 0
    running: int = 0
    retrying: int = 0
    parked: int = 0
    dead: int = 0
    oldest_ready_seconds: float | None = None
    paused_at: datetime | None = None
    paused_until: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    pause_seconds: float | None = None
    concurrency: int | None = None
    rate_spacing: float | None = None
    rate_burst: int | None = None
    kind: str = "tasks"
    count_max: int = COUNT_MAX
    is_partial: bool = False
    depth: int | None = None
    depth_max: int | None = None

    @property
    def is_paused(self) -> bool:
        """Whether an operator has stopped claims from it."""
        return self.paused_at is not None

    def is_more(self, state: str) -> bool:
        """Return whether there may be more jobs of *state* than were counted."""
        return getattr(self, state) >= self.count_max or (
            self.is_partial and state in ("running", "retrying", "scheduled")
        )


def queue_stats(
    cursor: Cursor,
    queues: Sequence[str] | None = None,
    count_max: int = COUNT_MAX,
    depth_limits: Mapping[str, int] = NO_LIMITS,
) -> list[QueueStats]:
    """
    Count the jobs of *queues* by state, in the order of their names.

    Args:
        cursor: An open cursor.
        queues: Names of queues; None: all that have a job, a dead letter or a row.
        count_max: How far to count, from 1; less with more than twenty queues.
        depth_limits: How many jobs queues may hold, of those that have such a limit.

    Raises:
        ValueError: *count_max* is below 1.
    """
    if count_max < 1:
        raise ValueError(f"count_max must be 1 or more, not {count_max}")
    names = sorted(set(all_names(cursor) if queues is None else queues))
    if not names:
        return []
    limit = min(count_max, max(ROWS_MAX // len(names), COUNT_MIN))
    counts = _counts(cursor, names, limit)
    cursor.execute(QUEUES, {"queues": names, "limit": limit})
    rows = {row[0]: row for row in cursor.fetchall()}
    depths = depth.latest(
        cursor, {name: most for name, most in depth_limits.items() if name in rows}
    )
    alone = {band.queue: band.jobs for band in suspects.waiting(cursor, limit)}
    stats = []
    for name in names:
        _, dead, *said = rows[name]
        stats.append(
            QueueStats(
                name=name,
                dead=dead,
                alone=min(alone.get(name, 0), counts[name].get("ready", 0)),
                **dict(zip(SAID, said, strict=True)),
                count_max=limit,
                depth=depths.get(name),
                depth_max=depth_limits.get(name),
                **counts[name],
            )
        )
    return stats


def all_names(cursor: Cursor) -> list[str]:
    """Return the queues that have a job, a dead letter or a row."""
    return column(cursor, NAMES)


def _counts(cursor: Cursor, names: list[str], limit: int) -> dict[str, dict[str, Any]]:
    """Add up the bands of each queue."""
    cursor.execute(BANDS, {"queues": names, "limit": limit})
    counts: dict[str, dict[str, Any]] = defaultdict(dict)
    for queue, *numbers, later, oldest in cursor.fetchall():
        count = counts[queue]
        states = ("ready", "running", "retrying", "scheduled", "parked")
        for state, number in zip(states, numbers, strict=True):
            count[state] = min(count.get(state, 0) + number, limit)
        count["is_partial"] = count.get("is_partial", False) or later >= limit
        if oldest is not None:
            before = count.get("oldest_ready_seconds", 0.0)
            count["oldest_ready_seconds"] = max(before, oldest, 0.0)
    return counts
