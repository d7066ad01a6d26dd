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

from django_pgqueue.postgres.bulk import BULK_ROWS_MAX, Items, as_array, chunks
from django_pgqueue.postgres.cursor import Cursor, one_row

# Locks: none that another enqueue waits for, except with a dedup key: a second job
# of the same key waits until the first one's transaction ends, and then conflicts.
# run_at is the caller's time, delay is counted from the database's clock; with
# neither, run_after stays NULL and the trigger is not called.
ENQUEUE = """
INSERT INTO pgqueue_job (queue, task, args, kwargs, headers, priority, max_attempts,
                         run_after, expires_at, schedule_id)
VALUES (%(queue)s, %(task)s, %(args)s::jsonb, %(kwargs)s::jsonb, %(headers)s::jsonb,
        %(priority)s, %(max_attempts)s,
        coalesce(%(run_at)s::timestamptz, clock_timestamp() + %(delay)s::interval),
        coalesce(%(expire_at)s::timestamptz,
                 clock_timestamp() + %(expire_in)s::interval), %(schedule_id)s)
RETURNING id
"""

# Locks: as ENQUEUE. For those who show when it was stored; the second one is the common
# case.
ENQUEUE_TIMED = ENQUEUE.replace("RETURNING id", "RETURNING id, enqueued_at")
ENQUEUE_NOW_TIMED = """
INSERT INTO pgqueue_job (queue, task, args, kwargs, headers, priority, max_attempts)
VALUES (%(queue)s, %(task)s, %(args)s::jsonb, %(kwargs)s::jsonb, %(headers)s::jsonb,
        %(priority)s, %(max_attempts)s)
RETURNING id, enqueued_at
"""

# Locks: as ENQUEUE. The common case, without a time: an INSERT into those columns, in
# a function, so that it is not planned anew for every job. Its signature has the types;
# places cost the driver less than names.
ENQUEUE_NOW = "SELECT pgqueue_store(%s, %s, %s, %s, %s, %s, %s)"

# Locks: as ENQUEUE. One statement for a chunk: WITH ORDINALITY and ORDER BY, so that
# ids rise in the caller's order and RETURNING answers in it. All arguments are one
# JSON array: a list of 5,000 texts costs psycopg, which quotes each, more time than all
# the rest takes. An element that is neither array nor object is refused by the table.
ENQUEUE_MANY = """
INSERT INTO pgqueue_job (queue, task, args, kwargs, headers, priority, max_attempts,
                         run_after, expires_at)
SELECT %(queue)s, %(task)s,
       CASE WHEN jsonb_typeof(item.value) = 'array' THEN item.value ELSE '[]' END,
       CASE WHEN jsonb_typeof(item.value) = 'array' THEN '{}' ELSE item.value END,
       %(headers)s::jsonb, %(priority)s, %(max_attempts)s,
       coalesce(%(run_at)s::timestamptz, clock_timestamp() + %(delay)s::interval),
       coalesce(%(expire_at)s::timestamptz,
                clock_timestamp() + %(expire_in)s::interval)
  FROM jsonb_array_elements(%(items)s::jsonb) WITH ORDINALITY AS item(value, place)
 ORDER BY item.place
RETURNING id
"""

# Locks: as ENQUEUE_MANY. The rows of a query become jobs without leaving the server;
# ids rise in the query's order, since a CTE is read in the order it was written. When
# the largest is too large, nothing is stored and nothing has failed: the caller is
# told the size, and his transaction stays usable.
ENQUEUE_FROM_SELECT = """
WITH item AS MATERIALIZED (
    SELECT jsonb_build_object({arguments}) AS kwargs
      FROM ({query}) AS source({columns})
), largest AS (
    SELECT max(octet_length(kwargs::text)) AS bytes FROM item
), stored AS (
    INSERT INTO pgqueue_job (queue, task, kwargs, headers, priority, max_attempts,
                             run_after, expires_at)
    SELECT %s, %s, item.kwargs, %s::jsonb, %s, %s,
           coalesce(%s::timestamptz, clock_timestamp() + %s::interval),
           coalesce(%s::timestamptz, clock_timestamp() + %s::interval)
      FROM item
     WHERE (SELECT bytes FROM largest) <= %s
    RETURNING id
)
SELECT (SELECT count(*) FROM stored), coalesce(largest.bytes, 0),
       CASE WHEN %s THEN (SELECT array_agg(id ORDER BY id) FROM stored) END
  FROM largest
"""

# How a column becomes the JSON that tasks/payload.py writes for the same value, by the
# name of its kind. Where both differ in form they read the same: a float is always
# tagged, since to_jsonb() writes 3.0 as 3. to_jsonb() gives times in ISO 8601 whatever
# DateStyle says.
TAGGED_AS = """
CASE WHEN {column} IS NOT NULL THEN
     jsonb_build_object('__pgqueue__', '%s', 'value', %s) END
"""
COLUMN_AS_JSON = {
    "plain": "to_jsonb({column})",
    "integer": "to_jsonb(trunc({column}::numeric))",
    "float": TAGGED_AS % ("float", "{column}::float8::text"),
    "decimal": TAGGED_AS % ("decimal", "{column}::numeric::text"),
    "uuid": TAGGED_AS % ("uuid", "{column}::text"),
    "bytes": TAGGED_AS % ("bytes", "translate(encode({column}, 'base64'), E'\\n', '')"),
    "date": TAGGED_AS % ("date", "to_jsonb({column}::date)"),
    "time": TAGGED_AS % ("time", "to_jsonb({column}::time)"),
    "naive datetime": TAGGED_AS % ("datetime", "to_jsonb({column}::timestamp)"),
    "datetime": TAGGED_AS
    % (
        "datetime",
        "(to_jsonb({column}::timestamptz AT TIME ZONE 'UTC') #>> '{{}}') || '+00:00'",
    ),
    "timedelta": TAGGED_AS
    % (
        "timedelta",
        "jsonb_build_array(0, 0, trunc(extract(epoch FROM {column}) * 1000000))",
    ),
}


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
    schedule_id: int | None = None  # Of the schedule whose tick it is.
    # Of a window that begins at the time above, or now (queues/spread.py).
    over_microseconds: int | None = None
    # Where in it a single job is due; None: that is sampled.
    offset_microseconds: int | None = None

    @property
    def has_time(self) -> bool:
        """Whether the jobs wait for a time, expire at one, or are of a schedule."""
        return not (
            self.schedule_id is None
            and self.run_at is None
            and self.delay is None
            and self.expire_at is None
            and self.expire_in is None
        )

    def params(self) -> dict[str, Any]:
        """Return the values by the names that the statements use."""
        return {name: getattr(self, name) for name in self.__slots__}


# What the rows of a query that become jobs share, in the order of ENQUEUE_FROM_SELECT.
PLACED = (
    *("queue", "task", "headers", "priority", "max_attempts"),
    *("run_at", "delay", "expire_at", "expire_in"),
)


def enqueue(cursor: Cursor, placement: Placement, *, args: str, kwargs: str) -> int:
    """
    Store one job and return its id: one round trip.

    Args:
        cursor: Django's or psycopg's; the caller commits.
        placement: Queue, task, priority, times.
        args: A JSON array as text.
        kwargs: A JSON object as text.
    """
    if placement.has_time:
        params = {**placement.params(), "args": args, "kwargs": kwargs}
        cursor.execute(ENQUEUE, params)
    else:
        at = placement
        values = (
            at.queue,
            at.task,
            args,
            kwargs,
            at.headers,
            at.priority,
            at.max_attempts,
        )
        cursor.execute(ENQUEUE_NOW, values)
    job_id: int = one_row(cursor)[0]
    return job_id


def enqueue_timed(
    cursor: Cursor, placement: Placement, *, args: str, kwargs: str
) -> tuple[int, datetime]:
    """Store one job; return its id, and when it was enqueued. As enqueue()."""
    params = {**placement.params(), "args": args, "kwargs": kwargs}
    cursor.execute(ENQUEUE_TIMED if placement.has_time else ENQUEUE_NOW_TIMED, params)
    job_id, enqueued_at = one_row(cursor)
    return job_id, enqueued_at


def enqueue_many(
    cursor: Cursor, placement: Placement, items: Sequence[Items]
) -> list[int]:
    """
    Store one job per argument in *items* and return their ids in the same order.

    One statement per BULK_ROWS_MAX rows or BULK_CHARACTERS_MAX, whichever comes first;
    what one of the items holds is never divided. The caller opens the transaction that
    makes several statements all or nothing.
    """
    ids: list[int] = []
    params = placement.params()
    for chunk in chunks(items, BULK_ROWS_MAX):
        params["items"] = as_array(chunk)
        cursor.execute(ENQUEUE_MANY, params)
        ids.extend(job_id for (job_id,) in cursor.fetchall())
    return ids


@dataclass(frozen=True, slots=True)
class Argument:
    """One keyword argument of the jobs that a query becomes."""

    name: str
    # Of COLUMN_AS_JSON; None: a constant, and not a column of the query.
    kind: str | None
    constant: str = "null"  # JSON text.


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a query whose rows were to be jobs."""

    count: int
    largest_bytes: int  # Of the arguments of a job.
    ids: Sequence[int]  # Empty unless they were asked for.
    keyless: int = 0  # Rows whose key has a NULL (queues/spread.py).


def enqueue_from_select(
    cursor: Cursor,
    placement: Placement,
    *,
    arguments: Sequence[Argument],
    query: str,
    params: Sequence[Any],
    payload_bytes_max: int,
    with_ids: bool,
    statement: str = ENQUEUE_FROM_SELECT,
    placed: Sequence[Any] | None = None,
) -> Stored:
    """
    Store one job per row of *query*; none, when the largest is too large.

    Args:
        cursor: Django's or psycopg's; the caller commits.
        placement: Queue, task, priority, times.
        arguments: Keyword arguments; those with a kind are, in this order, the first
            columns of the query. Up to 50.
        query: A SELECT with %s for its parameters, and %% for a percent sign.
        params: The parameters of query.
        payload_bytes_max: The most bytes of a job's arguments, as PostgreSQL writes
            JSON: with a blank after each colon and comma.
        with_ids: Whether to return the ids, in the order of the rows.
        statement: Which one, as ENQUEUE_FROM_SELECT is.
        placed: What it takes of the placement.
    """
    parts, names, columns = built(arguments)
    statement = statement.format(arguments=parts, query=query, columns=columns)
    if placed is None:
        placed = [getattr(placement, name) for name in PLACED]
    cursor.execute(statement, [*names, *params, *placed, payload_bytes_max, with_ids])
    count, largest_bytes, ids = one_row(cursor)
    return Stored(count, largest_bytes, ids or [])


def built(arguments: Sequence[Argument]) -> tuple[str, list[str], str]:
    """Return what builds the arguments, its parameters, and the columns they need."""
    parts: list[str] = []
    constants: list[str] = []
    columns: list[str] = []
    for argument in arguments:
        constants.append(argument.name)
        if argument.kind is None:
            parts.append("%s::text, %s::jsonb")
            constants.append(argument.constant)
        else:
            columns.append(f"c{len(columns)}")
            value = COLUMN_AS_JSON[argument.kind].format(column=f"source.{columns[-1]}")
            parts.append(f"%s::text, {value}")
    return ", ".join(parts), constants, ", ".join(columns or ["c0"])
