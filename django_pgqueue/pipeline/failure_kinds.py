"""Failures as pages show them: the most frequent ones of late, and their trends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django_pgqueue.postgres.cursor import Cursor, one_row

# Hours of failures that one look reads, the latest.
ROWS_MAX = 100_000

# Locks: none. One walk along the index of hours, the latest first; then the failures
# that it met, by their keys.
RECENT = """
WITH looked_at AS MATERIALIZED (
    SELECT h.fingerprint, h.count FROM pgqueue_failure_hour h
     WHERE h.hour >= %(since)s ORDER BY h.hour DESC LIMIT %(rows)s)
SELECT f.fingerprint, f.error_class, f.message, f.place, f.tasks::text, recent.errors,
       f.jobs, f.dead_letters, f.first_seen, f.last_seen,
       (SELECT count(*) FROM looked_at)
  FROM (SELECT l.fingerprint, sum(l.count)::bigint AS errors
          FROM looked_at l GROUP BY l.fingerprint) recent
  JOIN pgqueue_failure f ON f.fingerprint = recent.fingerprint
 WHERE (%(text)s::text = '' OR strpos(lower(f.error_class), lower(%(text)s)) > 0
        OR strpos(lower(f.place), lower(%(text)s)) > 0
        OR %(in_messages)s AND strpos(lower(f.message), lower(%(text)s)) > 0)
   AND (%(task)s::text = '' OR f.tasks @> to_jsonb(%(task)s::text))
 ORDER BY recent.errors DESC, f.last_seen DESC, f.fingerprint LIMIT %(limit)s
"""

# Locks: none.
CLOCK = "SELECT extract(epoch FROM clock_timestamp())::bigint"

# Locks: none. A range of the unique index for each fingerprint.
TREND = """
SELECT fingerprint,
       floor(extract(epoch FROM hour) / %(step)s)::bigint * %(step)s AS span,
       sum(count)::bigint
  FROM pgqueue_failure_hour
 WHERE fingerprint = ANY(%(fingerprints)s::text[]) AND hour >= %(since)s
 GROUP BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A failure, and how many of its errors happened of late."""

    fingerprint: str
    error_class: str
    message: str
    place: str
    tasks: str  # JSON.
    recent: int
    jobs: int
    dead_letters: int
    first_seen: datetime
    last_seen: datetime
    # Rows that were read to find it and all others.
    read: int


def clock(cursor: Cursor) -> int:
    """Return the server's time, in seconds since 1970."""
    cursor.execute(CLOCK)
    return int(one_row(cursor)[0])


def recent(
    cursor: Cursor,
    *,
    since: datetime,
    limit: int,
    text: str = "",
    in_messages: bool = False,
    task: str = "",
) -> list[Kind]:
    """
    Return the failures with the most errors from *since* on.

    Args:
        cursor: An open cursor.
        since: The first hour.
        limit: How many.
        text: Those alone that have it in their class or place, whatever the case.
        in_messages: Or in their message.
        task: Those alone that happened to this task.
    """
    cursor.execute(
        RECENT,
        {
            "since": since,
            "rows": ROWS_MAX,
            "text": text,
            "in_messages": in_messages,
            "task": task,
            "limit": limit,
        },
    )
    return [Kind(*row) for row in cursor.fetchall()]


def trends(
    cursor: Cursor, fingerprints: Sequence[str], *, since: datetime, step_seconds: int
) -> dict[str, dict[int, int]]:
    """
    Return how many errors happened, by fingerprint and span.

    Args:
        cursor: An open cursor.
        fingerprints: Of whom.
        since: The first hour.
        step_seconds: Of a span; whole hours. Spans are named by their first second
            since 1970.
    """
    cursor.execute(
        TREND,
        {"fingerprints": list(fingerprints), "since": since, "step": step_seconds},
    )
    found: dict[str, dict[int, int]] = {name: {} for name in fingerprints}
    for name, span, count in cursor.fetchall():
        found[name][span] = count
    return found
