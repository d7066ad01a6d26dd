"""
Spread: store jobs over a window, at sampled moments or at those of their keys.

The window begins at the placement's time, or when the statement came to the server.
An offset is a whole number of microseconds, from 0 to below the window's length: given
by the caller, made of a key as timetable/offset.py does, or sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django_pgqueue.postgres.bulk import Items, as_array, chunks
from django_pgqueue.postgres.cursor import Cursor, one_row
from django_pgqueue.queues.enqueue import PLACED, Argument, Placement, Stored, built
from django_pgqueue.timetable.offset import DIGITS, SEPARATOR

# Rows per statement. Far more than of bulk() otherwise: what is due over a day keeps no
# worker waiting, and so a fan-out of usual size has one beginning.
SPREAD_ROWS_MAX = 100_000

# Locks: as ENQUEUE. A window needs a beginning, so run_after is never NULL.
# statement_timestamp() is the same for all rows; an interval of microseconds alone is
# added exactly, whatever the session's time zone does meanwhile.
SPREAD = """
INSERT INTO pgqueue_job (queue, task, args, kwargs, headers, priority, max_attempts,
                         run_after, expires_at)
VALUES (%(queue)s, %(task)s, %(args)s::jsonb, %(kwargs)s::jsonb, %(headers)s::jsonb,
        %(priority)s, %(max_attempts)s,
        coalesce(%(run_at)s::timestamptz,
                 statement_timestamp() + coalesce(%(delay)s::interval, '0'))
        + coalesce(%(offset_microseconds)s::bigint,
                   floor(random() * %(over_microseconds)s::bigint)::bigint)
          * interval '1 microsecond',
        coalesce(%(expire_at)s::timestamptz,
                 clock_timestamp() + %(expire_in)s::interval))
RETURNING id
"""

# Locks: as ENQUEUE_MANY, and like it one JSON array. Without offsets unnest() has no
# rows, and ROWS FROM fills up with NULL: then they are sampled.
SPREAD_MANY = """
INSERT INTO pgqueue_job (queue, task, args, kwargs, headers, priority, max_attempts,
                         run_after, expires_at)
SELECT %(queue)s, %(task)s,
       CASE WHEN jsonb_typeof(item.value) = 'array' THEN item.value ELSE '[]' END,
       CASE WHEN jsonb_typeof(item.value) = 'array' THEN '{}' ELSE item.value END,
       %(headers)s::jsonb, %(priority)s, %(max_attempts)s,
       coalesce(%(run_at)s::timestamptz,
                statement_timestamp() + coalesce(%(delay)s::interval, '0'))
       + coalesce(item.microseconds,
                  floor(random() * %(over_microseconds)s::bigint)::bigint)
         * interval '1 microsecond',
       coalesce(%(expire_at)s::timestamptz,
                clock_timestamp() + %(expire_in)s::interval)
  FROM ROWS FROM (jsonb_array_elements(%(items)s::jsonb),
                  unnest(%(offsets)s::bigint[]))
       WITH ORDINALITY AS item(value, microseconds, place)
 ORDER BY item.place
RETURNING id
"""

# Of several statements of one call: all have the window of the first.
WINDOW_START = "SELECT statement_timestamp() + coalesce(%(delay)s::interval, '0')"

# Locks: as ENQUEUE_FROM_SELECT. The key is read from the arguments as they are stored,
# so that it has the text that Python reads there. Where a part of it is NULL there is
# no moment: nothing is stored then, and the caller is told of how many rows.
SPREAD_FROM_SELECT = """
WITH item AS MATERIALIZED (
    SELECT jsonb_build_object({arguments}) AS kwargs
      FROM ({query}) AS source({columns})
), placed AS MATERIALIZED (
    SELECT item.kwargs, {offset} AS microseconds FROM item
), total AS (
    SELECT max(octet_length(kwargs::text)) AS bytes,
           count(*) - count(microseconds) AS keyless
      FROM placed
), stored AS (
    INSERT INTO pgqueue_job (queue, task, kwargs, headers, priority, max_attempts,
                             run_after, expires_at)
    SELECT %s, %s, placed.kwargs, %s::jsonb, %s, %s,
           coalesce(%s::timestamptz,
                    statement_timestamp() + coalesce(%s::interval, '0'))
           + placed.microseconds * interval '1 microsecond',
           coalesce(%s::timestamptz, clock_timestamp() + %s::interval)
      FROM placed
     WHERE (SELECT bytes <= %s AND keyless = 0 FROM total)
    RETURNING id
)
SELECT (SELECT count(*) FROM stored), coalesce(total.bytes, 0),
       CASE WHEN %s THEN (SELECT array_agg(id ORDER BY id) FROM stored) END,
       total.keyless
  FROM total
"""

SAMPLED = "floor(random() * %s::bigint)::bigint"

# The first digits of SHA-256 as a number; bit(60) makes it no negative one.
HASHED = f"""
('x' || left(encode(sha256(convert_to({{key}}, 'UTF8')), 'hex'), {DIGITS}))
::bit({4 * DIGITS})::bigint %% %s::bigint
"""

SEPARATED = f" || chr({ord(SEPARATOR)}) || "

# The text of a JSON value; a date and a UUID are tagged.
FROM_ARGUMENT = "coalesce(item.kwargs #>> ARRAY[%s, 'value'], item.kwargs ->> %s)"


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A value of the key that the jobs of a query have."""

    # A keyword argument of theirs; None: a constant.
    argument: str | None
    constant: str = ""


def enqueue_spread(
    cursor: Cursor, placement: Placement, *, args: str, kwargs: str
) -> int:
    """Store one job in its window and return its id; as enqueue()."""
    cursor.execute(SPREAD, {**placement.params(), "args": args, "kwargs": kwargs})
    job_id: int = one_row(cursor)[0]
    return job_id


def enqueue_many_spread(
    cursor: Cursor, placement: Placement, items: Sequence[Items]
) -> list[int]:
    """
    Store one job per argument in *items*, over the window; as enqueue_many().

    One statement per SPREAD_ROWS_MAX rows. Items either all have offsets, or none.
    """
    found = list(chunks(items, SPREAD_ROWS_MAX))
    if len(found) > 1:
        placement = pinned(cursor, placement)
    ids: list[int] = []
    params = placement.params()
    for chunk in found:
        params["items"] = as_array(chunk)
        params["offsets"] = as_offsets(chunk)
        cursor.execute(SPREAD_MANY, params)
        ids.extend(job_id for (job_id,) in cursor.fetchall())
    return ids


def pinned(cursor: Cursor, placement: Placement) -> Placement:
    """Return *placement* with a window that begins for all statements at once."""
    if placement.over_microseconds is None or placement.run_at is not None:
        return placement
    cursor.execute(WINDOW_START, placement.params())
    return replace(placement, run_at=one_row(cursor)[0])


def as_offsets(chunk: Sequence[Items]) -> str | None:
    """Return the offsets of some jobs as an array in SQL; None: they have none."""
    # Text, since psycopg would look at each number.
    offsets = [str(offset) for part in chunk for offset in part.offsets]
    return f"{{{','.join(offsets)}}}" if offsets else None


def offset_of_row(
    placement: Placement, key: Sequence[KeyPart]
) -> tuple[str, list[Any]]:
    """Return the SQL of the offset of a row of item, and its parameters by place."""
    if not key:
        return SAMPLED, [placement.over_microseconds]
    params: list[Any] = [placement.task]
    for part in key:
        name = part.argument
        params += [part.constant] if name is None else [name, name]
    texts = SEPARATED.join(["%s", *map(_text, key)])
    return HASHED.format(key=texts), [*params, placement.over_microseconds]


def spread_from_select(
    cursor: Cursor,
    placement: Placement,
    *,
    arguments: Sequence[Argument],
    key: Sequence[KeyPart],
    query: str,
    params: Sequence[Any],
    payload_bytes_max: int,
    with_ids: bool,
) -> Stored:
    """
    Store one job per row of *query*, over the window; as enqueue_from_select().

    Args:
        cursor: As there, and so the others.
        placement: With over_microseconds.
        arguments: Keyword arguments.
        key: What the offsets are made of; empty: they are sampled.
        query: A SELECT.
        params: Its parameters.
        payload_bytes_max: The most bytes of a job's arguments.
        with_ids: Whether to return the ids.

    Returns:
        Also in how many rows a part of the key is NULL; if in any, nothing is stored.
    """
    offset, offset_params = offset_of_row(placement, key)
    parts, names, columns = built(arguments)
    cursor.execute(
        SPREAD_FROM_SELECT.format(
            arguments=parts, query=query, columns=columns, offset=offset
        ),
        [
            *names,
            *params,
            *offset_params,
            *(getattr(placement, name) for name in PLACED),
            payload_bytes_max,
            with_ids,
        ],
    )
    count, largest_bytes, ids, keyless = one_row(cursor)
    return Stored(count, largest_bytes, ids or [], keyless)


def _text(part: KeyPart) -> str:
    return "%s::text" if part.argument is None else FROM_ARGUMENT
