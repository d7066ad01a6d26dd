"""
Unique: store jobs that have a dedup key, or say which job has it already.

What one call does about a key that is taken is in sql/store_unique.sql, a function of
the database, so that one job, many jobs, the rows of a query and SQL producers go by
the same rules.

Repeat: calls that met a late job are made again, once they have committed.

A call in a transaction must be followed by a job that starts after its commit. While
the job that has its key is young, the call keeps it from being claimed until then. One
that has been due for long is let go, so that callers without a pause cannot keep it
from running, and the call is written down (pgqueue_dedup_call) beside what its
transaction writes. Whoever finds it here knows that it has committed.

Retake: a job that went back to its queue takes its dedup key again.

A job that has its key only while it waits (queued_key) gave it away when it was
claimed. Another one may have it by now: then a job that has run ends here, visibly, in
favour of that other one, and a job that has not really run goes on without its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, Literal, NamedTuple

from django_pgqueue.postgres.bulk import Items, as_array, chunks
from django_pgqueue.postgres.cursor import Cursor, one_row
from django_pgqueue.queues.enqueue import (
    MANY,
    ONE,
    Form,
    Placement,
    as_offsets,
    pinned,
    values,
)
from django_pgqueue.queues.enqueue_rows import (
    IS_FINE,
    MADE_OF_ROWS,
    Argument,
    KeyPart,
    Selected,
    made,
)
from django_pgqueue.queues.rules import Rule

# Rows per statement. More than of plain jobs: rows are stored in the order of their
# keys within a statement, so two bulks deadlock only if one of them needs several.
UNIQUE_ROWS_MAX = 100_000

Hold = Literal["queued", "queued|running"]
Conflict = Literal["skip", "replace", "reschedule", "error", "debounce"]

# Locks: those of pgqueue_store_unique(), which its file in sql/ names.
ONE_STORED = """
SELECT stored.out_id, stored.out_conflict FROM {call} AS stored
"""

# Locks: the same for each row, in the order of the keys, so that two of these cannot
# deadlock. OFFSET 0 keeps the sorted rows a table of their own, which LATERAL goes
# through from its beginning. A single value of by is the key of all rows.
MANY_STORED = """
SELECT item.place, stored.out_id, stored.out_conflict
  FROM (SELECT keyed.place, keyed.value, keyed.microseconds, keyed.key
          FROM (SELECT i.place, i.value, i.microseconds, pgqueue_dedup_key(
                           %(task)s, coalesce(i.by, %(by)s::jsonb)) AS key
                  FROM ROWS FROM (jsonb_array_elements(%(items)s::jsonb),
                                  jsonb_array_elements(%(bys)s::jsonb),
                                  unnest(%(offsets)s::bigint[]))
                       WITH ORDINALITY AS i(value, by, microseconds, place)
                OFFSET 0) AS keyed
         ORDER BY keyed.key COLLATE "C", keyed.place
        OFFSET 0) AS item
 CROSS JOIN LATERAL {call} AS stored
"""

# Locks: as MANY_STORED. by: the columns that make the key, or one value for all rows.
# place: rows of one key meet each other in the order of the query.
ROWS_STORED = f"""
, keyed AS MATERIALIZED (
    SELECT placed.kwargs, placed.place, placed.microseconds,
           pgqueue_dedup_key(%(task)s, coalesce(%(by)s::jsonb, (
               SELECT CASE WHEN %(is_hidden)s
                           THEN jsonb_build_array(jsonb_object_agg(name, value))
                           ELSE jsonb_object_agg(name, value) END
                 FROM (SELECT name, coalesce(placed.kwargs -> name, %(defaults)s::jsonb
                                                                  -> name) AS value
                         FROM unnest(%(names)s::text[]) AS name) AS named))) AS key
      FROM placed
     WHERE {IS_FINE}
), sorted AS MATERIALIZED (
    SELECT keyed.kwargs, keyed.microseconds, keyed.key
      FROM keyed
     ORDER BY keyed.key COLLATE "C", keyed.place
), stored AS MATERIALIZED (
    SELECT stored.out_id AS id, stored.out_conflict AS conflict
      FROM sorted AS placed
     CROSS JOIN LATERAL {{call}} AS stored)
SELECT (SELECT bytes FROM total), stored.conflict, count(*), min(stored.id),
       CASE WHEN %(with_ids)s THEN array_agg(stored.id ORDER BY stored.id) END,
       (SELECT keyless FROM total)
  FROM (VALUES (1)) AS one LEFT JOIN stored ON true
 GROUP BY stored.conflict
"""


# Its key: of one job, and of many.
ONE_KEY = "pgqueue_dedup_key(%(task)s, %(by)s::jsonb)"
KEY = "item.key"


@cache
def call(form: Form, rule: Rule, key: str) -> str:
    """Return the call of the function. The moment, too: a test can say another one."""
    return f"""pgqueue_store_unique({values(form, rule)},
       clock_timestamp(), {key}, %(hold)s, %(conflict)s, %(max_wait)s::interval,
       %(period)s::interval, %(jobs)s, %(locks)s)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedup:
    """What a call says about the keys of its jobs."""

    # When the key is free again; None: the job has none, and a period alone counts.
    hold: Hold | None
    conflict: Conflict
    # The value of the key, as JSON: one for all jobs of the call. None: bys has one
    # for each, or names has the parameters that make it.
    by: str | None = None
    bys: Sequence[str] = ()
    names: Sequence[str] = ()
    defaults: str = "{}"  # A JSON object: parameters that a query may leave out.
    is_hidden: bool = False  # Of names: whether the key is not to be read.
    max_wait: timedelta | None = None
    period: timedelta | None = None
    jobs: int = 1  # That one period may have.

    def params(self) -> dict[str, Any]:
        """Return the values by the names that the statements use."""
        return {
            "hold": self.hold,
            "conflict": self.conflict,
            "by": self.by,
            "max_wait": self.max_wait,
            "period": self.period,
            "jobs": self.jobs,
        }


class Stored(NamedTuple):
    """A job that was stored, or the one that has its key."""

    id: int
    # skipped, replaced, rescheduled, debounced, throttled; None: it was stored.
    conflict: str | None


def store_unique(
    cursor: Cursor,
    placement: Placement,
    dedup: Dedup,
    *,
    args: str,
    kwargs: str,
    locks: bool,
) -> Stored:
    """
    Store one job, or return the one that has its key: one round trip.

    Args:
        cursor: Django's or psycopg's; the caller commits.
        placement: Queue, task, priority, times.
        dedup: The key, and what follows where it is taken.
        args: A JSON array as text.
        kwargs: A JSON object as text.
        locks: Whether a job that stands for this one, and waits, starts only after the
            caller's transaction has ended. Where none is open: False.

    Raises:
        OperationalError: (Django's or psycopg's) 40P01, 40001: the transaction has
            met another one, and can be run again.
    """
    params = {**placement.params(), **dedup.params(), "locks": locks}
    cursor.execute(
        ONE_STORED.format(call=call(ONE, placement.rule, ONE_KEY)),
        {**params, "args": args, "kwargs": kwargs},
    )
    return Stored(*one_row(cursor))


def store_unique_many(
    cursor: Cursor,
    placement: Placement,
    dedup: Dedup,
    items: Sequence[Items],
    *,
    locks: bool,
) -> list[Stored]:
    """
    Store one job for each item whose key is free; answer in the items' order.

    One statement per UNIQUE_ROWS_MAX rows or BULK_CHARACTERS_MAX. Ids rise with the
    keys, not in the items' order.

    Args:
        cursor: As in store_unique().
        placement: Queue, task, priority, times.
        dedup: Its bys are those of the items, in their order, unless by is given.
        items: Of one job each.
        locks: As in store_unique().

    Raises:
        OperationalError: As store_unique().
    """
    stored: list[Stored] = []
    params = {**placement.params(), **dedup.params(), "locks": locks}
    found = list(chunks(items, UNIQUE_ROWS_MAX))
    if len(found) > 1:
        params |= pinned(cursor, placement).params()
    statement = MANY_STORED.format(call=call(MANY, placement.rule, KEY))
    for chunk in found:
        jobs = sum(part.jobs for part in chunk)
        bys = dedup.bys[len(stored) : len(stored) + jobs]
        params["items"], params["bys"] = as_array(chunk), f"[{','.join(bys)}]"
        params["offsets"] = as_offsets(chunk)
        cursor.execute(statement, params)
        rows = sorted(cursor.fetchall())
        stored.extend(Stored(job_id, conflict) for _, job_id, conflict in rows)
    return stored


def store_unique_selected(
    cursor: Cursor,
    placement: Placement,
    dedup: Dedup,
    *,
    arguments: Sequence[Argument],
    key: Sequence[KeyPart] = (),
    query: str,
    params: Sequence[Any],
    payload_bytes_max: int,
    with_ids: bool,
    locks: bool,
) -> Selected:
    """
    Store one job per row of *query* whose key is free; as enqueue_from_select().

    Raises:
        OperationalError: As store_unique().
    """
    statement, named = made(
        placement,
        arguments=arguments,
        key=key,
        query=query,
        params=params,
    )
    stored = ROWS_STORED.format(call=call(MADE_OF_ROWS, placement.rule, "placed.key"))
    cursor.execute(
        statement + stored,
        {
            **placement.params(),
            **dedup.params(),
            **named,
            "names": list(dedup.names),
            "defaults": dedup.defaults,
            "is_hidden": dedup.is_hidden,
            "bytes_max": payload_bytes_max,
            "with_ids": with_ids,
            "locks": locks,
        },
    )
    rows = cursor.fetchall()
    # One row at least, for the bytes; without an id it counts nothing.
    found = {row[1]: row for row in rows if row[3] is not None}
    created = found.get(None)
    return Selected(
        count=0 if created is None else created[2],
        largest_bytes=rows[0][0],
        ids=[] if created is None else created[4] or [],
        keyless=rows[0][5] or 0,
        first_ids={conflict: row[3] for conflict, row in found.items()},
    )


# Calls per statement.
REPEAT_CALLS_MAX = 200

# Locks: those of pgqueue_repeat_calls(), which its file in sql/ names.
REPEAT = """
SELECT repeated.out_id, repeated.out_queue, repeated.out_outcome
  FROM pgqueue_repeat_calls(%(limit)s) AS repeated
"""

# Locks: row locks on the calls that have committed, until the caller's transaction
# ends; SKIP LOCKED: those of another call, which stands for them.
FORGET_CALLS = """
DELETE FROM pgqueue_dedup_call WHERE id = ANY(ARRAY(
    SELECT id FROM pgqueue_dedup_call WHERE holder_id = ANY(%(ids)s::bigint[])
       FOR UPDATE SKIP LOCKED))
"""


class Repeated(NamedTuple):
    """A call that was made again."""

    # Of the job that stands for it.
    id: int
    queue: str
    # stored; skipped: another one waits, or has the period. waits: somebody has taken
    # the key and not committed, so it is tried again; and so is one that failed: ….
    outcome: str


def repeat_calls(cursor: Cursor, *, limit: int = REPEAT_CALLS_MAX) -> list[Repeated]:
    """
    Make calls again that were written down and have committed; never waits for long.

    Args:
        cursor: An open cursor; the caller commits, and wakes the queues of what was
            stored.
        limit: Calls.
    """
    cursor.execute(REPEAT, {"limit": limit})
    return [Repeated(*row) for row in cursor.fetchall()]


def forget_calls(cursor: Cursor, holders: Sequence[int]) -> None:
    """Take back the calls that were told of the jobs *holders*, which are cancelled."""
    cursor.execute(FORGET_CALLS, {"ids": list(holders)})


# Of row j, right after it was put back: whether it has to take its key again.
IS_KEYLESS = "j.queued_key IS NOT NULL AND j.dedup_key IS NULL"

# How long to wait for a key that somebody has taken and not committed: hardly, while
# the keys of other jobs of the batch are held; then for each alone, this long in all.
PATIENCE_SECONDS = 0.01
PATIENCE_ALONE_SECONDS = 1.0

# Locks: those of pgqueue_retake_keys(), which its file in sql/ names.
RETAKE = """
SELECT retaken.out_id, retaken.out_outcome, retaken.out_holder
  FROM pgqueue_retake_keys(
           %(ids)s::bigint[], %(have_run)s::bool[], %(patience)s) AS retaken
"""


def retake(cursor: Cursor, jobs: Sequence[tuple[int, bool]]) -> dict[int, int]:
    """
    Let *jobs* take their keys again; return who supersedes which of them.

    Those that are claimed again meanwhile are passed over. A key whose new holder has
    not committed is waited for, a second at most for all of them: then they go on
    without.

    Args:
        cursor: An open cursor, right after the statement that put them back.
        jobs: (id, ran) each. ran: its task ended by itself, so its twin can stand for
            it; False: it was handed back, rescued, or crashed.

    Returns:
        By the id of a job that was archived as cancelled, that of the job which has
        its key.
    """
    superseded: dict[int, int] = {}
    waiting = _still_waiting(cursor, jobs, PATIENCE_SECONDS, superseded)
    for job in waiting:
        share = PATIENCE_ALONE_SECONDS / len(waiting)
        _still_waiting(cursor, [job], share, superseded)
    return superseded


def _still_waiting(
    cursor: Cursor,
    jobs: Sequence[tuple[int, bool]],
    patience_seconds: float,
    superseded: dict[int, int],
) -> list[tuple[int, bool]]:
    """Ask once for all of *jobs*; return those whose key nobody has committed."""
    cursor.execute(
        RETAKE,
        {
            "ids": [job_id for job_id, _ in jobs],
            "have_run": [ran for _, ran in jobs],
            "patience": f"{max(round(patience_seconds * 1_000), 1)}ms",
        },
    )
    waiting: set[int] = set()
    for job_id, outcome, holder in cursor.fetchall():
        if outcome == "superseded":
            superseded[job_id] = holder
        elif outcome == "waits":
            waiting.add(job_id)
    return [job for job in jobs if job[0] in waiting]
