"""
Enqueued hours: how many jobs of an hour there are, and how many there were.

Counted by the hour in which they were enqueued, wherever they are by now, in one
snapshot of all tables: a job that moves is in one of them. What was once seen of an
hour that is over is the account; what is there less than that is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_pgqueue.pipeline.task_hours import store_rows
from django_pgqueue.postgres.cursor import Cursor

# Rows of the queue that one statement looks at.
LOOKED_AT_ROWS_MAX = 50_000

HOUR = "date_bin('1 hour', enqueued_at, 'epoch')"

# Locks: none; here and below, where nothing else is said. A part of the primary key;
# rows without an hour are of other hours, and say where the next part begins.
COUNT_WAITING = f"""
WITH looked_at AS MATERIALIZED (
    SELECT id, queue, task,
           CASE WHEN enqueued_at >= %(since)s AND enqueued_at < %(until)s
                THEN {HOUR} END AS hour
      FROM pgqueue_job WHERE id > %(after)s ORDER BY id LIMIT %(rows)s)
SELECT hour, queue, task, count(*), max(max(id)) OVER () FROM looked_at
 GROUP BY hour, queue, task
"""

# A day of the archive. Jobs end after they were enqueued.
COUNT_ARCHIVED = f"""
SELECT {HOUR} AS hour, queue, task, count(*) FROM pgqueue_archived_job
 WHERE finished_at >= %(from)s AND finished_at < %(to)s
   AND enqueued_at >= %(since)s AND enqueued_at < %(until)s
 GROUP BY 1, 2, 3
"""

# A range of the index of finished_at.
COUNT_DEAD = f"""
SELECT {HOUR} AS hour, queue, task, count(*) FROM pgqueue_dead_letter
 WHERE finished_at >= %(since)s
   AND enqueued_at >= %(since)s AND enqueued_at < %(until)s
 GROUP BY 1, 2, 3
"""

KNOWN = """
SELECT hour, queue, task, enqueued FROM pgqueue_enqueued_hour
 WHERE hour >= %(since)s AND hour < %(until)s
"""

# Locks: row locks on what has changed, until the caller's transaction ends.
STORE = """
INSERT INTO pgqueue_enqueued_hour AS h (hour, queue, task, enqueued, waiting, archived,
                                        dead, computed_at)
SELECT hour, queue, task, enqueued, waiting, archived, dead, clock_timestamp()
  FROM unnest(%(hour)s::timestamptz[], %(queue)s::text[], %(task)s::text[],
              %(enqueued)s::bigint[], %(waiting)s::bigint[], %(archived)s::bigint[],
              %(dead)s::bigint[])
       AS seen(hour, queue, task, enqueued, waiting, archived, dead)
ON CONFLICT (hour, queue, task) DO UPDATE
   SET enqueued = EXCLUDED.enqueued, waiting = EXCLUDED.waiting,
       archived = EXCLUDED.archived, dead = EXCLUDED.dead,
       computed_at = EXCLUDED.computed_at
 WHERE (h.enqueued, h.waiting, h.archived, h.dead)
       <> (EXCLUDED.enqueued, EXCLUDED.waiting, EXCLUDED.archived, EXCLUDED.dead)
"""

# Locks: row locks on the deleted rows.
FORGET_HOURS = """
DELETE FROM pgqueue_enqueued_hour
 WHERE hour < statement_timestamp() - %(keep)s::interval
"""

# Locks: none. Its partial index has no other rows.
MISSING = """
SELECT hour, queue, task, enqueued,
       enqueued - waiting - archived - dead AS missing, computed_at - hour AS age
  FROM pgqueue_enqueued_hour
 WHERE enqueued > waiting + archived + dead
   AND hour >= clock_timestamp() - %(period)s::interval
 ORDER BY hour LIMIT %(limit)s
"""
# Locks: none.
HAS_ANY = "SELECT 1 FROM pgqueue_enqueued_hour LIMIT 1"


class Key(NamedTuple):
    """What is counted together."""

    hour: datetime
    queue: str
    task: str


class Seen(NamedTuple):
    """Where the jobs of a key are, in one snapshot."""

    waiting: int = 0
    archived: int = 0
    dead: int = 0

    @property
    def all(self) -> int:
        """How many there are."""
        return sum(self)


class Counting:
    """
    Counts the jobs that were enqueued between two whole hours.

    Its cursor is in a transaction that has one snapshot: in_one_snapshot().
    """

    def __init__(self, cursor: Cursor, since: datetime, until: datetime) -> None:
        self._cursor = cursor
        self._range = {"since": since, "until": until}
        self._seen: dict[Key, list[int]] = {}

    def count_waiting(self) -> None:
        """Count those in the queue, a part of it at a time."""
        after: int | None = 0
        while after is not None:
            values = {**self._range, "after": after, "rows": LOOKED_AT_ROWS_MAX}
            self._cursor.execute(COUNT_WAITING, values)
            after = None
            for hour, queue, task, count, last in self._cursor.fetchall():
                after = last
                if hour is not None:
                    self.add("waiting", hour, queue, task, count)

    def count_archived(self, first: datetime, end: datetime) -> None:
        """Count those that ended between two times, a day at most."""
        self._count(COUNT_ARCHIVED, "archived", {"from": first, "to": end})

    def count_dead(self) -> None:
        """Count the dead letters."""
        self._count(COUNT_DEAD, "dead", {})

    def add(
        self, place: str, hour: datetime, queue: str, task: str, count: int
    ) -> None:
        """Add what was found in a place, one of the fields of Seen."""
        counts = self._seen.setdefault(Key(hour, queue, task), [0, 0, 0])
        counts[Seen._fields.index(place)] += count

    def seen(self) -> dict[Key, Seen]:
        """Return what was counted."""
        return {key: Seen(*counts) for key, counts in self._seen.items()}

    def _count(self, statement: str, place: str, values: Mapping[str, Any]) -> None:
        self._cursor.execute(statement, {**self._range, **values})
        for hour, queue, task, count in self._cursor.fetchall():
            self.add(place, hour, queue, task, count)


def accounts(known: Mapping[Key, int], seen: Mapping[Key, Seen]) -> dict[Key, int]:
    """
    Return how many jobs of each key were enqueued, by all that is known.

    The most that was ever seen. Jobs that somebody has moved to another queue are of
    that one: as many as it has more, and others of the hour and task have less.
    """
    enqueued = {
        key: max(known.get(key, 0), seen.get(key, Seen()).all)
        for key in {*known, *seen}
    }
    grown: dict[tuple[datetime, str], int] = {}
    for key, count in seen.items():
        more = count.all - known.get(key, 0)
        if more > 0:
            place = key.hour, key.task
            grown[place] = grown.get(place, 0) + more
    for key in sorted(known):
        less = enqueued[key] - seen.get(key, Seen()).all
        moved = min(less, grown.get((key.hour, key.task), 0))
        if moved > 0:
            enqueued[key] -= moved
            grown[key.hour, key.task] -= moved
    return enqueued


def known(cursor: Cursor, since: datetime, until: datetime) -> dict[Key, int]:
    """Return how many jobs were enqueued, as earlier runs have seen."""
    cursor.execute(KNOWN, {"since": since, "until": until})
    return {Key(*key): count for *key, count in cursor.fetchall()}


def store(cursor: Cursor, enqueued: Mapping[Key, int], seen: Mapping[Key, Seen]) -> int:
    """Write what has changed; return how many rows."""
    rows = sorted(
        (*key, count, *seen.get(key, Seen())) for key, count in enqueued.items()
    )
    names = ("hour", "queue", "task", "enqueued", *Seen._fields)
    return store_rows(cursor, STORE, names, rows)


def forget(cursor: Cursor, keep: timedelta) -> None:
    """Delete the hours older than *keep*."""
    cursor.execute(FORGET_HOURS, {"keep": keep})
