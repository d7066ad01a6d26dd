"""
Task spans: what ended, by task, queue and span of time. Added to, read and purged.

Workers add what they have settled every few seconds (worker/chores/counting.py), and
the leader what clients of pull queues have (pull_ends.py): to a minute, to ten minutes
and to an hour. So whoever reads a week reads hours, and no chore has to sum minutes up.

Time buckets: how many durations were about how long, in powers of two from 1 ms.

Counts of several rows add up, which percentiles do not. What is read from them is in
the right bucket, so it is off by less than a factor of two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import ClientCursor

from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.cursor import Cursor

# The first has what took less than 1 ms; the one at place n from 2 ** (n - 1) ms up to
# 2 ** n ms; the last all from there on: 18.6 hours.
BUCKETS = 28


def place_of(seconds: float) -> int:
    """Return the place of the bucket that a duration, of 0 or more, belongs to."""
    place = int(seconds * 1_000).bit_length()
    return place if place < BUCKETS else BUCKETS - 1


def percentile(counts: Sequence[int], share: float) -> float | None:
    """
    Return about how many seconds *share* of the durations took at most.

    It is in the same bucket as the exact one: off by less than a factor of two, or by
    less than 1 ms. Of the last bucket it is the least that it can be.

    Args:
        counts: How many there are in each bucket, of BUCKETS.
        share: From 0 to 1: 0.95 for a p95.

    Returns:
        None: there are no durations.
    """
    total = sum(counts)
    if not total:
        return None
    rank, below = max(share * total, 1), 0
    for place, count in enumerate(counts):
        if below + count >= rank:
            return _within(place, (rank - below) / count)
        below += count
    return _within(BUCKETS - 1, 0.0)


def _within(place: int, share: float) -> float:
    """Return where in a bucket *share* of its durations end, if they are even in it."""
    if place == 0:
        return share / 1_000
    low = 2.0 ** (place - 1) / 1_000
    if place == BUCKETS - 1:
        return low
    # The end is of the next bucket.
    return low * math.pow(2.0, min(share, 0.999))


# How long spans are, in seconds, and for how long they are kept. A chart reads the
# shortest that reach back far enough.
KEPT: Mapping[int, timedelta] = {
    60: timedelta(hours=3),
    600: timedelta(hours=30),
    3_600: timedelta(days=8),
}
LONGEST = max(KEPT)


# Stands for the queue and the task of what is not counted apart; no queue and no task
# has this name.
OTHERS = "(others)"

COUNTS = ("succeeded", "failed", "dead", "cancelled", "expired")
SUMS = ("wait_seconds", "run_seconds")
HISTOGRAMS = ("waits", "runs")

STEPS = ", ".join(f"({seconds})" for seconds in KEPT)
KEPT_FOR = ", ".join(
    f"({seconds}, interval '{keep.total_seconds():.0f} s')"
    for seconds, keep in KEPT.items()
)


def _listed(*names: str, form: str = "{0}") -> str:
    """Return columns as SQL lists them, each in a form."""
    return ", ".join(map(form.format, names))


def _histogram(form: str, column: str) -> str:
    """Return SQL for an array with something of each bucket of a column."""
    each = (form.format(column, n) for n in range(1, BUCKETS + 1))
    return f"ARRAY[{', '.join(each)}]"


def _added(column: str) -> str:
    return _histogram("s.{0}[{1}] + EXCLUDED.{0}[{1}]", column)


def _summed(column: str) -> str:
    return _histogram("sum({0}[{1}])::bigint", column)


# What a row has; and how what is counted is added to one that is there, as s.
COLUMNS = f"seconds, since, queue, task, {_listed(*COUNTS, *SUMS, *HISTOGRAMS)}"
ADDED = f"""
ON CONFLICT (seconds, since, queue, task) DO UPDATE
   SET {_listed(*COUNTS, *SUMS, form="{0} = s.{0} + EXCLUDED.{0}")},
       waits = {_added("waits")},
       runs = {_added("runs")}
"""

# Locks: row locks on the rows of the spans that it is, in the order of their key, so
# that two workers wait for each other and never in a circle; for the statement, since
# LATE is sent with it as one.
# The server's clock says which span it is: that of the counts, or of the few seconds
# since.
ADD = f"""
INSERT INTO pgqueue_task_span AS s ({COLUMNS})
SELECT span.seconds,
       date_bin(make_interval(secs => span.seconds), statement_timestamp(),
                'epoch'::timestamptz) AS since,
       counted.queue, counted.task, {_listed(*COUNTS, *SUMS, form="counted.{0}")},
       {_listed(*HISTOGRAMS, form="counted.{0}::bigint[]")}
  FROM unnest(%(queues)s::text[], %(tasks)s::text[],
              {_listed(*COUNTS, form="%({0})s::bigint[]")},
              {_listed(*SUMS, form="%({0})s::float8[]")},
              {_listed(*HISTOGRAMS, form="%({0})s::text[]")})
       AS counted(queue, task, {_listed(*COUNTS, *SUMS, *HISTOGRAMS)})
 CROSS JOIN (VALUES {STEPS}) AS span(seconds)
 ORDER BY span.seconds, since, counted.queue, counted.task
{ADDED}
"""

# Locks: none. Sent before ADD and as one with it, that is as one transaction in one
# round trip: a worker that is frozen keeps no row locked. Outcomes wait behind this, so
# it neither waits long for anybody nor for the disk.
LATE = """
SET LOCAL lock_timeout = '500ms';
SET LOCAL statement_timeout = '1s';
SET LOCAL synchronous_commit = off;
"""

# Locks: row locks on the deleted rows, for the statement; nobody adds to them any more.
# By place, which a scan of an index gives: ctid.
PURGE = f"""
WITH purged AS (
    DELETE FROM pgqueue_task_span WHERE ctid = ANY(ARRAY(
        SELECT old.place FROM (VALUES {KEPT_FOR}) AS kept(seconds, keep)
         CROSS JOIN LATERAL (
               SELECT s.ctid AS place FROM pgqueue_task_span s
                WHERE s.seconds = kept.seconds
                  AND s.since < statement_timestamp() - kept.keep
                ORDER BY s.since LIMIT %(limit)s) old
         LIMIT %(limit)s))
    RETURNING 1)
SELECT count(*), NULL::timestamptz FROM purged
"""

SUMMED = f"""
{_listed(*COUNTS, form="sum({0})::bigint")}, {_listed(*SUMS, form="sum({0})")},
       {_summed("waits")},
       {_summed("runs")}
"""

# What is asked for, and the length of the spans that say it: the shortest that are kept
# from then on. A point is as many of them as it takes; the first begins where one does.
ASKED = f"""
shortest AS MATERIALIZED (
    SELECT coalesce(min(seconds), {LONGEST}) AS seconds
      FROM (VALUES {KEPT_FOR}) AS kept(seconds, keep)
     WHERE %(since)s::timestamptz >= statement_timestamp() - kept.keep),
wide AS MATERIALIZED (
    SELECT seconds,
           (ceil(extract(epoch FROM %(until)s::timestamptz - %(since)s::timestamptz)
                 / %(points)s / seconds) * seconds)::bigint AS width
      FROM shortest),
asked AS MATERIALIZED (
    SELECT seconds, width,
           to_timestamp(floor(extract(epoch FROM %(since)s::timestamptz) / width)
                        * width) AS since
      FROM wide)
"""
# A part of the primary key, from one end to the other; what is kept bounds it.
LOOKED_AT = """
  FROM pgqueue_task_span
 WHERE seconds = (SELECT seconds FROM asked) AND since >= (SELECT since FROM asked)
   AND since < %(until)s
"""

# Locks: none. One row without counts where there are none, which says the width. Points
# are of what is asked for; totals of all, so that it can be chosen from.
CHARTS = f"""
WITH {ASKED}
SELECT asked.since, asked.width, told.*
  FROM asked LEFT JOIN (
       SELECT floor(extract(epoch FROM since)
                    / (SELECT width FROM asked))::bigint AS point,
              NULL AS queue, NULL AS task, {SUMMED}
       {LOOKED_AT}
          AND %(queue)s::text IN ('', queue) AND %(task)s::text IN ('', task)
        GROUP BY 1
        UNION ALL
       SELECT NULL, queue, task, {SUMMED}
       {LOOKED_AT}
        GROUP BY queue, task) told ON true
"""


def _no_counts() -> list[int]:
    return [0] * BUCKETS


@dataclass(slots=True)
class Counted:
    """
    What ended, and how long it took.

    Attributes:
        succeeded, dead, cancelled, expired: Jobs that ended so.
        failed: Attempts that failed, also those after which the job is tried again.
        wait_seconds: Of all attempts: from when each was due to its claim.
        run_seconds: Of those that ran: how long each did.
        waits, runs: How many were about how long.
    """

    succeeded: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0
    expired: int = 0
    wait_seconds: float = 0.0
    run_seconds: float = 0.0
    waits: list[int] = field(default_factory=_no_counts)
    runs: list[int] = field(default_factory=_no_counts)

    @property
    def ended(self) -> int:
        """How many jobs ended, in whatever way."""
        return self.succeeded + self.dead + self.cancelled + self.expired

    @property
    def tried_again(self) -> int:
        """How many attempts failed whose job is tried again."""
        return self.failed - self.dead

    @property
    def ran(self) -> int:
        """How many attempts ran."""
        return sum(self.runs)

    @property
    def wait_p50(self) -> float | None:
        """Seconds that half of the attempts waited at most; off by a factor of two."""
        return percentile(self.waits, 0.5)

    @property
    def wait_p95(self) -> float | None:
        """The same of 95 in 100."""
        return percentile(self.waits, 0.95)

    @property
    def run_p50(self) -> float | None:
        """Seconds that half of the attempts ran at most; off by a factor of two."""
        return percentile(self.runs, 0.5)

    @property
    def run_p95(self) -> float | None:
        """The same of 95 in 100."""
        return percentile(self.runs, 0.95)


@dataclass(slots=True)
class Point(Counted):
    """What ended from *at* on, in UTC, for as long as its charts say."""

    at: datetime = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Charts:
    """
    What ended in a period.

    Attributes:
        points: One after the other, without a gap, each *width_seconds* long.
        totals: By queue and task, of all of them.
    """

    width_seconds: int
    points: list[Point]
    totals: dict[tuple[str, str], Counted]


def add(link: Link, counts: Mapping[tuple[str, str], Counted]) -> None:
    """
    Add counts to the spans that it is now, by queue and task.

    Waits for others for half a second at most.

    Raises:
        psycopg.Error: Nothing was added; LockNotAvailable: somebody has locked a row.
    """
    keys = sorted(counts)
    rows = [counts[key] for key in keys]
    params: dict[str, Any] = {
        "queues": [queue for queue, _ in keys],
        "tasks": [task for _, task in keys],
        **{name: [getattr(row, name) for row in rows] for name in (*COUNTS, *SUMS)},
        **{name: [_array(getattr(row, name)) for row in rows] for name in HISTOGRAMS},
    }
    # A cursor of its own kind: several statements at once take no parameters.
    with ClientCursor(link.connection) as cursor:
        cursor.execute(LATE + ADD, params)


def charts(
    cursor: Cursor,
    since: datetime,
    until: datetime,
    *,
    queue: str = "",
    task: str = "",
    points: int = 60,
) -> Charts:
    """
    Return what ended between two times, in at most so many points and one more.

    A point is whole minutes if *since* is within 3 hours, else whole ten minutes within
    30 hours, else whole hours; the first begins at such a time, not after *since*.

    Args:
        cursor: psycopg's or Django's.
        since: Aware; older than 8 days: there is nothing.
        until: Aware, after *since*.
        queue: Points are of this queue alone; "": of all.
        task: Points are of this task alone; "": of all.
        points: How many, from 1.

    Raises:
        ValueError: *until* is not after *since*, or *points* is below 1.
    """
    if until <= since:
        raise ValueError(f"until must be after since, {since}, not {until}")
    if points < 1:
        raise ValueError(f"points must be 1 or more, not {points}")
    asked = {"since": since, "until": until, "points": points}
    cursor.execute(CHARTS, {**asked, "queue": queue, "task": task})
    rows = cursor.fetchall()
    first, width = rows[0][:2]
    step, start = timedelta(seconds=width), first.astimezone(UTC)
    found = {point: values for _, _, point, _, _, *values in rows if point is not None}
    number = -(-(until - start) // step)
    place = int(start.timestamp()) // width
    return Charts(
        width,
        [_point(start + n * step, found.get(place + n)) for n in range(number)],
        {
            (queue, task): Counted(*values)
            for _, _, _, queue, task, *values in rows
            if task is not None
        },
    )


def _point(at: datetime, values: Iterable[Any] | None) -> Point:
    return Point(*(values or ()), at=at)


def _array(counts: Iterable[int]) -> str:
    """Return counts as a literal of PostgreSQL."""
    return f"{{{','.join(map(str, counts))}}}"
