"""
Unique: store jobs that have a dedup key, or say which job has it already.

What one call does about a key that is taken is in sql/store_unique.sql, a function of
the database, so that one job, many jobs, the rows of a query and SQL producers go by
the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple

from django_pgqueue.postgres.bulk import Items, as_array, chunks
from django_pgqueue.postgres.cursor import Cursor, one_row
from django_pgqueue.queues.enqueue import COLUMN_AS_JSON, Argument, Placement
from django_pgqueue.queues.spread import KeyPart, as_offsets, offset_of_row, pinned

# Rows per statement. More than of plain jobs: rows are stored in the order of their
# keys within a statement, so two bulks deadlock only if one of them needs several.
UNIQUE_ROWS_MAX = 100_000

Hold = Literal["queued", "queued|running"]
Conflict = Literal["skip", "replace", "reschedule", "error", "debounce"]

# What the function is called with, but for its arguments and key. The moment is asked
# for out here, where a test can say another one.
CALLED_WITH = """
    %(queue)s, %(task)s, {args}, {kwargs}, %(headers)s::jsonb, %(priority)s,
    %(max_attempts)s,
    CASE WHEN %(over_microseconds)s::bigint IS NULL
         THEN coalesce(%(run_at)s::timestamptz, clock_timestamp() + %(delay)s::interval)
         ELSE coalesce(%(run_at)s::timestamptz,
                       statement_timestamp() + coalesce(%(delay)s::interval, '0'))
              + {offset} * interval '1 microsecond' END,
    coalesce(%(expire_at)s::timestamptz, clock_timestamp() + %(expire_in)s::interval),
    clock_timestamp(), {key}, %(hold)s, %(conflict)s, %(max_wait)s::interval,
    %(period)s::interval, %(jobs)s, %(locks)s
"""

# In a window (queues/spread.py), where no key says when.
SAMPLED = "floor(random() * %(over_microseconds)s::bigint)::bigint"

# Locks: those of pgqueue_store_unique(), which its file in sql/ names.
STORE_UNIQUE = f"""
SELECT stored.out_id, stored.out_conflict
  FROM pgqueue_store_unique({
    CALLED_WITH.format(
        args="%(args)s::jsonb",
        kwargs="%(kwargs)s::jsonb",
        key="pgqueue_dedup_key(%(task)s, %(by)s::jsonb)",
        offset=f"coalesce(%(offset_microseconds)s::bigint, {SAMPLED})",
    )
}) AS stored
"""

# Locks: the same for each row, in the order of the keys, so that two of these cannot
# deadlock. OFFSET 0 keeps the sorted rows a table of their own, which LATERAL goes
# through from its beginning. A single value of by is the key of all rows.
STORE_UNIQUE_MANY = f"""
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
 CROSS JOIN LATERAL pgqueue_store_unique({
    CALLED_WITH.format(
        args="CASE WHEN jsonb_typeof(item.value) = 'array' THEN item.value"
        " ELSE '[]' END",
        kwargs="CASE WHEN jsonb_typeof(item.value) = 'array' THEN '{}'"
        " ELSE item.value END",
        key="item.key",
        offset=f"coalesce(item.microseconds, {SAMPLED})",
    )
}) AS stored
"""

# Locks: as STORE_UNIQUE_MANY. When the largest is too large, nothing is stored, and the
# caller is told the size. by: the columns that make the key, or one value for all rows.
# place: rows of one key meet each other in the order of the query.
STORE_UNIQUE_SELECTED = f"""
WITH item AS MATERIALIZED (
    SELECT jsonb_build_object({{arguments}}) AS kwargs, row_number() OVER () AS place
      FROM ({{query}}) AS source({{columns}})
), placed AS MATERIALIZED (
    SELECT item.kwargs, item.place, {{offset}} AS microseconds FROM item
), largest AS (
    SELECT max(octet_length(kwargs::text)) AS bytes,
           count(*) - count(microseconds) AS keyless
      FROM placed
), keyed AS MATERIALIZED (
    SELECT item.kwargs, item.place, item.microseconds,
           pgqueue_dedup_key(%(task)s, coalesce(%(by)s::jsonb, (
               SELECT CASE WHEN %(is_hidden)s
                           THEN jsonb_build_array(jsonb_object_agg(name, value))
                           ELSE jsonb_object_agg(name, value) END
                 FROM (SELECT name, coalesce(item.kwargs -> name, %(defaults)s::jsonb
                                                                  -> name) AS value
                         FROM unnest(%(names)s::text[]) AS name) AS named))) AS key
      FROM placed AS item
     WHERE (SELECT bytes <= %(bytes_max)s AND keyless = 0 FROM largest)
), sorted AS MATERIALIZED (
    SELECT keyed.kwargs, keyed.microseconds, keyed.key
      FROM keyed
     ORDER BY keyed.key COLLATE "C", keyed.place
), stored AS MATERIALIZED (
    SELECT stored.out_id AS id, stored.out_conflict AS conflict
      FROM sorted
     CROSS JOIN LATERAL pgqueue_store_unique({
    CALLED_WITH.format(
        args="'[]'",
        kwargs="sorted.kwargs",
        key="sorted.key",
        offset="sorted.microseconds",
    )
}) AS stored)
SELECT coalesce((SELECT bytes FROM largest), 0), stored.conflict, count(*),
       min(stored.id),
       CASE WHEN %(with_ids)s THEN array_agg(stored.id ORDER BY stored.id) END,
       (SELECT keyless FROM largest)
  FROM (VALUES (1)) AS one LEFT JOIN stored ON true
 GROUP BY stored.conflict
"""


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


@dataclass(frozen=True, slots=True)
class Selected:
    """What became of a query whose rows were to be jobs."""

    largest_bytes: int
    # How many rows came to which conflict (None: stored), and the first id of each.
    counts: dict[str | None, int]
    first_ids: dict[str | None, int]
    # Those that were stored, in the order of their ids, if they were asked for.
    ids: Sequence[int]
    # Rows where the key of their moment has a NULL; if any, nothing was stored.
    keyless: int


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
    cursor.execute(STORE_UNIQUE, {**params, "args": args, "kwargs": kwargs})
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
    for chunk in found:
        jobs = sum(part.jobs for part in chunk)
        bys = dedup.bys[len(stored) : len(stored) + jobs]
        params["items"], params["bys"] = as_array(chunk), f"[{','.join(bys)}]"
        params["offsets"] = as_offsets(chunk)
        cursor.execute(STORE_UNIQUE_MANY, params)
        rows = sorted(cursor.fetchall())
        stored.extend(Stored(job_id, conflict) for _, job_id, conflict in rows)
    return stored


def store_unique_selected(
    cursor: Cursor,
    placement: Placement,
    dedup: Dedup,
    *,
    arguments: Sequence[Argument],
    offset_key: Sequence[KeyPart] = (),
    query: str,
    params: Sequence[Any],
    payload_bytes_max: int,
    with_ids: bool,
    locks: bool,
) -> Selected:
    """
    Store one job per row of *query* whose key is free; as enqueue_from_select().

    offset_key: Of a placement with a window, as key in spread_from_select().

    Raises:
        OperationalError: As store_unique().
    """
    named: dict[str, Any] = {}
    parts: list[str] = []
    columns: list[str] = []
    for place, argument in enumerate(arguments):
        named[f"name{place}"] = argument.name
        if argument.kind is None:
            named[f"constant{place}"] = argument.constant
            parts.append(f"%(name{place})s::text, %(constant{place})s::jsonb")
        else:
            columns.append(f"c{len(columns)}")
            value = COLUMN_AS_JSON[argument.kind].format(column=f"source.{columns[-1]}")
            parts.append(f"%(name{place})s::text, {value}")
    # The query has its parameters by place: psycopg takes one kind in a statement.
    query = _by_name(query, params, "param", named)
    offset = "0::bigint"
    if placement.over_microseconds is not None:
        sql, offset_params = offset_of_row(placement, offset_key)
        offset = _by_name(sql, offset_params, "offset", named)
    statement = STORE_UNIQUE_SELECTED.format(
        arguments=", ".join(parts),
        query=query,
        columns=", ".join(columns or ["c0"]),
        offset=offset,
    )
    cursor.execute(
        statement,
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
        largest_bytes=rows[0][0],
        counts={conflict: row[2] for conflict, row in found.items()},
        first_ids={conflict: row[3] for conflict, row in found.items()},
        ids=[] if created is None else created[4] or [],
        keyless=rows[0][5] or 0,
    )


def _by_name(
    sql: str, params: Sequence[Any], prefix: str, named: dict[str, Any]
) -> str:
    """Return *sql* with names for its places; the values are added to *named*."""
    first, *pieces = sql.replace("%%", "\0").split("%s")
    named.update({f"{prefix}{place}": value for place, value in enumerate(params)})
    joined = first + "".join(
        f"%({prefix}{place})s{piece}" for place, piece in enumerate(pieces)
    )
    return joined.replace("\0", "%%")
