"""
Lanes: jobs that wait behind others of their key, and what lets them through.

A lane is a valve. Its jobs are stored parked, and a *promotion* makes the next ones
visible as the lane has room: one at a time and in order of a group, so many of a limit.
What is limited is therefore never claimed and handed back.

Workers promote a lane after the commit of whoever has put a job into it, or taken one
out: for what they have settled themselves, and for others, who send a hint (HINT,
FREED_HINT). What nobody has told them of, or a crash left undone, is found by when jobs
become due (newly_due()), and by going through all lanes (with_room()).

Horizon of lanes: up to which id, and which time, what was stored is committed.

Who keeps a floor below which nothing waits must know that nobody will commit a job
there. Ids are drawn, and due times taken, before their transaction commits; but only by
one that has a lock on the table of jobs until then. So: note the last id and the time,
then who has a lock. When all of these have ended, what was noted is the horizon.

A transaction that reads, however long, has no such lock and holds nothing up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_pgqueue.postgres.cursor import Cursor, column, one_row

# Lanes that a promotion takes at once; it holds the lock of each.
PROMOTE_LANES_MAX = 100

# Parked jobs that newly_due() reads at once, and lanes that with_room() looks at.
DUE_ROWS_MAX = 5_000
LANES_LOOKED_AT_MAX = 500

# How long the row of a lane with a rate stays that says nothing any more: one that is
# in use now and then keeps it.
REST = timedelta(minutes=10)
REST_UNCLAIMED = timedelta(days=1)

# What is notified instead of a queue's name: lanes have got jobs. With a number after
# it, these were stored so many seconds before they were committed.
HINT = "!lanes"
HINT_SECONDS_MAX = 3_600

# Likewise, with the name of one that jobs have left by other hands than a worker's. The
# leader finds those that are not told.
FREED_HINT = "!lane:"
FREED_HINTS_MAX = 20

# Whether a job j starts by the rate of its lane. A put back one is parked then, and has
# its turn anew: another start is another one that counts.
PACED = "(j.lane IS NOT NULL AND j.lane_spacing IS NOT NULL)"

# Locks: those of the function. Who runs jobs without a worker says the time, so that
# tests can stop it.
PROMOTE = """
SELECT jobs, queues, locked, paced, next_seconds, floored, promotions, ids, dues
  FROM pgqueue_promote(%(lanes)s::text[], %(paced)s, %(promotions)s::bigint[],
                       %(ids)s::bigint[], %(dues)s::timestamptz[],
                       CASE WHEN NOT %(paced)s THEN clock_timestamp() END)
"""

# Locks: none. Those of parked jobs.
LANES_OF = """
SELECT DISTINCT j.lane FROM pgqueue_job j
 WHERE j.id = ANY(%(ids)s::bigint[]) AND j.visible_at IS NULL AND j.lane IS NOT NULL
"""

# Locks: none. From where the last look has ended, so that it walks over no dead entries
# of what was let through since. Rows are compared, since many jobs may have one time.
# Nothing but lane_due_at is asked for, which only a parked job of a lane has: so no
# other index fits. The last condition is that of the index, in the same words; claims
# look after fair lanes themselves.
NOT_FAIR = "NOT (j.lane_policy = 'fair' AND j.lane_policy IS NOT NULL)"
NEWLY_DUE = f"""
WITH due AS MATERIALIZED (
    SELECT j.lane, j.lane_due_at, j.id FROM pgqueue_job j
     WHERE (j.lane_due_at, j.id) > (coalesce(%(after)s::timestamptz,
               least(%(since)s::timestamptz,
                     statement_timestamp() - %(back)s::interval)),
           %(after_id)s::bigint)
       AND j.lane_due_at <= statement_timestamp() AND {NOT_FAIR}
     ORDER BY j.lane_due_at, j.id LIMIT %(limit)s)
SELECT statement_timestamp(), due.count, due.lanes, due.last_at, due.last_id,
       (SELECT min(j.lane_due_at) FROM pgqueue_job j
         WHERE j.lane_due_at > statement_timestamp() AND {NOT_FAIR})
  FROM (SELECT count(*) AS count,
               coalesce(array_agg(DISTINCT lane), '{{}}') AS lanes,
               max(lane_due_at) AS last_at,
               (array_agg(id ORDER BY lane_due_at DESC, id DESC))[1] AS last_id
          FROM due) due
"""

# Locks: none. A loose index scan: one probe per lane, however many jobs it has; the
# counter stops it, which a LIMIT outside did not. A lane's newest parked job says how
# many it takes, and its first that is due is looked for by the promotion.
WITH_ROOM = """
WITH RECURSIVE lane(name, place) AS (
    (SELECT j.lane, 1 FROM pgqueue_job j
      WHERE j.visible_at IS NULL AND j.lane > %(after)s ORDER BY j.lane LIMIT 1)
    UNION ALL
    SELECT (SELECT j.lane FROM pgqueue_job j
             WHERE j.visible_at IS NULL AND j.lane > lane.name
             ORDER BY j.lane LIMIT 1), lane.place + 1
      FROM lane WHERE lane.name IS NOT NULL AND lane.place < %(limit)s
), looked_at AS MATERIALIZED (SELECT * FROM lane WHERE name IS NOT NULL)
SELECT (SELECT name FROM looked_at ORDER BY place DESC LIMIT 1),
       (SELECT count(*) FROM looked_at),
       ARRAY(SELECT l.name FROM looked_at l CROSS JOIN LATERAL (
             SELECT j.lane_capacity, j.lane_policy, j.task FROM pgqueue_job j
              WHERE j.lane >= l.name AND j.lane <= l.name AND j.visible_at IS NULL
              ORDER BY j.lane DESC, j.id DESC LIMIT 1) newest
             LEFT JOIN pgqueue_lane kept ON kept.name = l.name
             LEFT JOIN pgqueue_lane of_task ON of_task.name = newest.task
             CROSS JOIN LATERAL (
             SELECT CASE WHEN newest.lane_capacity IS NULL THEN 1
                         ELSE coalesce(kept.capacity, newest.lane_capacity)
                    END AS capacity) takes
       WHERE coalesce(kept.paused_until <= statement_timestamp(),
                      kept.paused_at IS NULL)
         AND (newest.lane_policy = 'fair'
              OR coalesce(of_task.paused_until <= statement_timestamp(),
                          of_task.paused_at IS NULL))
         AND (newest.lane_policy = 'fair' OR takes.capacity > (SELECT count(*) FROM (
             SELECT FROM pgqueue_job j
              WHERE j.lane = l.name AND j.visible_at IS NOT NULL
              LIMIT takes.capacity) held))
       ORDER BY l.place)
"""


# Rows of lanes with a rate that say nothing any more: the bucket is full, as that of a
# lane without a row. What was let through and never told of as claimed is forgotten
# after a day, once no job of it is left. Some are looked at, by name.
# Locks: row locks on those that go, for the statement; a promotion that has one waits,
# and then makes it anew. One that a promotion changes meanwhile is looked at again by
# the DELETE, and stays.
FORGET = """
WITH looked AS MATERIALIZED (
    SELECT name FROM pgqueue_lane WHERE name > %(after)s ORDER BY name LIMIT %(limit)s),
gone AS (
    DELETE FROM pgqueue_lane l
     WHERE l.name = ANY(ARRAY(SELECT name FROM looked))
       AND l.capacity IS NULL AND l.paused_at IS NULL AND l.weight IS NULL
       AND l.full_at < statement_timestamp() - %(rest)s::interval
       AND (l.unclaimed = 0
            OR (l.full_at < statement_timestamp() - %(rest_unclaimed)s::interval
                AND NOT EXISTS (SELECT FROM pgqueue_job j
                                 WHERE j.lane = l.name AND j.visible_at IS NOT NULL)))
    RETURNING l.name)
SELECT (SELECT max(name) FROM looked), (SELECT count(*) FROM looked),
       (SELECT count(*) FROM gone)
"""


class Floor(NamedTuple):
    """
    From where on a lane has something left; see sql/promote.sql.

    Attributes:
        promotion: No visible job of it was let through by an earlier one.
        id: No job with a smaller one has waited in it since it was stored.
        due_at: None of a limit that was due before; None: nothing is known of that.
    """

    promotion: int = 0
    id: int = 0
    due_at: datetime | None = None


NO_FLOOR = Floor()


class Promoted(NamedTuple):
    """
    What became of a promotion.

    Attributes:
        jobs: How many it let through.
        queues: Which queues they are in; and in which there is something due of a fair
            lane, by the hint of queues/fair.py.
        locked: Lanes with a job that somebody else had locked: ask again soon.
        paced: Lanes with a rate in which jobs wait that are let through by and by.
        next_seconds: When, for each of these, from now on; others depend on a claim.
        floored: Those of the lanes asked for in which something is parked.
        promotions: For each the floor's promotion that it saw; None: it did not look.
        ids: Likewise the floor's id.
        dues: Likewise the floor's due_at.
    """

    jobs: int
    queues: list[str]
    locked: list[str]
    paced: Sequence[str] = ()
    next_seconds: Sequence[float] = ()
    floored: Sequence[str] = ()
    promotions: Sequence[int | None] = ()
    ids: Sequence[int | None] = ()
    dues: Sequence[datetime | None] = ()


class Mark(NamedTuple):
    """Where a look has ended: when a job became due, and its id."""

    at: datetime
    id: int


@dataclass(frozen=True, slots=True)
class Due:
    """
    Lanes with jobs that have become due.

    Attributes:
        now: The database's clock.
        lanes: Their names.
        after: Where to go on, since there are more; None: there are none.
        next_seconds: In how many seconds the next job becomes due; None: there is none.
    """

    now: datetime
    lanes: list[str]
    after: Mark | None
    next_seconds: float | None


@dataclass(frozen=True, slots=True)
class Looked:
    """Lanes that have room, and after which one to go on; None: that was the last."""

    lanes: list[str]
    after: str | None


def promote(
    cursor: Cursor,
    lanes: Sequence[str],
    *,
    paced: bool = True,
    floors: Sequence[Floor] = (),
) -> Promoted:
    """
    Let through what *lanes* have room for.

    Args:
        cursor: In autocommit, and READ COMMITTED: the statement is a transaction of its
            own, whose end is that of the locks.
        lanes: Up to PROMOTE_LANES_MAX names; one that has no job is no error.
        paced: Whether rates hold; False: for those who run jobs without a worker.
        floors: Of each lane; empty: all of each is looked at.
    """
    assert len(lanes) <= PROMOTE_LANES_MAX
    cursor.execute(PROMOTE, promotion(lanes, paced, floors))
    return Promoted(*one_row(cursor))


def promotion(
    lanes: Sequence[str], paced: bool = True, floors: Sequence[Floor] = ()
) -> dict[str, Any]:
    """Return the parameters of PROMOTE."""
    return {
        "lanes": list(lanes),
        "paced": paced,
        "promotions": [floor.promotion for floor in floors],
        "ids": [floor.id for floor in floors],
        "dues": [floor.due_at for floor in floors],
    }


def promote_lanes_of(cursor: Cursor, ids: Sequence[int]) -> int:
    """
    Let through what the lanes of parked jobs have room for; return how many jobs.

    For those who run jobs without a worker.
    """
    names = column(cursor, LANES_OF, ids=list(ids))
    return sum(promote(cursor, chunk, paced=False).jobs for chunk in in_chunks(names))


def promote_all(cursor: Cursor) -> int:
    """Let through what any lane has room for; return how many jobs. As above."""
    jobs, after = 0, ""
    while True:
        looked = with_room(cursor, after=after)
        chunks = in_chunks(looked.lanes)
        jobs += sum(promote(cursor, chunk, paced=False).jobs for chunk in chunks)
        if looked.after is None:
            return jobs
        after = looked.after


def in_chunks(lanes: Collection[str]) -> Iterator[list[str]]:
    """Yield *lanes* in order, as many as a promotion takes."""
    names = sorted(lanes)
    for start in range(0, len(names), PROMOTE_LANES_MAX):
        yield names[start : start + PROMOTE_LANES_MAX]


def newly_due(
    cursor: Cursor,
    *,
    since: datetime | None,
    back: timedelta,
    after: Mark | None = None,
    limit: int = DUE_ROWS_MAX,
) -> Due:
    """
    Return lanes with jobs that became due after *since*, or *back* ago, until now.

    Args:
        cursor: An open cursor.
        since: By the database's clock; None: only *back* counts. The earlier one does.
        back: How long ago. A job has its time when it is stored, and is seen when that
            is committed.
        after: Where the last look has ended, of one that takes several.
        limit: Jobs to look at.
    """
    cursor.execute(
        NEWLY_DUE,
        {
            "since": since,
            "back": back,
            "after": None if after is None else after.at,
            "after_id": 0 if after is None else after.id,
            "limit": limit,
        },
    )
    now, count, lanes, last_at, last_id, next_at = one_row(cursor)
    return Due(
        now=now,
        lanes=lanes,
        after=Mark(last_at, last_id) if count >= limit else None,
        next_seconds=None if next_at is None else (next_at - now).total_seconds(),
    )


def with_room(
    cursor: Cursor, *, after: str = "", limit: int = LANES_LOOKED_AT_MAX
) -> Looked:
    """
    Return lanes, of the next *limit* after *after*, that could let a job through.

    Args:
        cursor: An open cursor.
        after: The last that was looked at; "": begin with the first.
        limit: Lanes to look at.
    """
    cursor.execute(WITH_ROOM, {"after": after, "limit": limit})
    last, count, lanes = one_row(cursor)
    return Looked(lanes, last if count >= limit else None)


def forget(
    cursor: Cursor, *, after: str = "", limit: int = LANES_LOOKED_AT_MAX
) -> tuple[int, str]:
    """
    Delete rows of lanes with a rate that say nothing any more.

    Args:
        cursor: An open cursor, in autocommit.
        after: The last that was looked at; "": begin with the first.
        limit: Rows to look at.

    Returns:
        How many are gone, and after which to go on; "": that was the last.
    """
    told = {"after": after, "limit": limit}
    rests = {"rest": REST, "rest_unclaimed": REST_UNCLAIMED}
    cursor.execute(FORGET, {**told, **rests})
    last, count, gone = one_row(cursor)
    return gone, last if count >= limit else ""


def freed_hints(lanes: Iterable[str]) -> list[str]:
    """Return what to notify after the commit of who has taken jobs out of *lanes*."""
    return [f"{FREED_HINT}{lane}" for lane in sorted(lanes)[:FREED_HINTS_MAX]]


def seconds_of(hint: str) -> float:
    """Return how many seconds ago the jobs were stored that a HINT is about."""
    digits = hint.removeprefix(HINT)
    return float(min(int(digits), HINT_SECONDS_MAX)) if digits.isdecimal() else 0.0


# Locks: none.
STORED = """
SELECT coalesce(pg_sequence_last_value(
           pg_get_serial_sequence('pgqueue_job', 'id')::regclass), 0),
       clock_timestamp()
"""

# Locks: none that stays; each part of the lock table for a moment. Prepared
# transactions are among them.
WRITERS = """
SELECT coalesce(array_agg(DISTINCT l.virtualtransaction), '{}')
  FROM pg_locks l
 WHERE l.locktype = 'relation' AND l.relation = 'pgqueue_job'::regclass
   AND l.database = (SELECT d.oid FROM pg_database d
                      WHERE d.datname = current_database())
   AND l.mode = 'RowExclusiveLock' AND l.granted
"""


class Stored(NamedTuple):
    """The last id that was drawn, and the database's time."""

    id: int
    at: datetime


class Horizon:
    """
    What one process knows of it.

    Attributes:
        upto: None: nothing yet.
    """

    def __init__(self) -> None:
        self.upto: Stored | None = None
        self._next: Stored | None = None
        self._writers: set[str] = set()

    def look(self, cursor: Cursor) -> None:
        """Move it as far as it goes; *cursor* is in autocommit."""
        cursor.execute(STORED)
        stored = Stored(*one_row(cursor))
        # After it: who draws an id from here on has a larger one.
        cursor.execute(WRITERS)
        (writers,) = one_row(cursor)
        self._writers.intersection_update(writers)
        if not self._writers:
            self.upto = self._next or self.upto
            self._next, self._writers = stored, set(writers)
            if not writers:
                self.upto = stored
