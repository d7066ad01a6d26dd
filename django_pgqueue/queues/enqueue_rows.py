"""
Rows: jobs that are made of the rows of a query, which never leave the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django_pgqueue.bounds import LANE_CHARACTERS_MAX, LANE_DIGITS, LANE_SEPARATOR
from django_pgqueue.postgres.cursor import Cursor, one_row
from django_pgqueue.queues.enqueue import Form, Placement, insert
from django_pgqueue.queues.rules import SAMPLED
from django_pgqueue.timetable.offset import DIGITS, SEPARATOR

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


# Locks: none. The rows with the arguments of their jobs, as they are stored: from them
# comes the key of a row's offset, so that it has the text that Python reads there.
# Where a part of it is NULL there is no moment. OFFSET 0: they are built once. place:
# ids rise in the query's order.
MADE = """
WITH placed AS MATERIALIZED (
    SELECT item.kwargs, {offset} AS microseconds, {lane} AS lane,
           row_number() OVER () AS place
      FROM (SELECT jsonb_build_object({arguments}) AS kwargs
              FROM ({query}) AS source({columns})
            OFFSET 0) AS item
), total AS (
    SELECT coalesce(max(octet_length(kwargs::text)), 0) AS bytes,
           count(*) - count(microseconds) AS keyless
      FROM placed
)"""
# When the largest is too large or a row has no moment, nothing is stored and nothing
# has failed: the caller is told, and his transaction stays usable.
IS_FINE = "(SELECT bytes <= %(bytes_max)s AND keyless = 0 FROM total)"

MADE_OF_ROWS = Form(
    args="'[]'",
    kwargs="placed.kwargs",
    offset="placed.microseconds",
    place="placed.place",
    lane="placed.lane",
    source="placed",
)

# Locks: as insert().
COUNTED = """
SELECT (SELECT count(*) FROM stored), total.bytes,
       CASE WHEN %(with_ids)s THEN (SELECT array_agg(id ORDER BY id) FROM stored) END,
       total.keyless
  FROM total
"""

# The first digits of SHA-256 as a number; bit(60) makes it no negative one.
HASHED = f"""
('x' || left(encode(sha256(convert_to({{key}}, 'UTF8')), 'hex'), {DIGITS}))
::bit({4 * DIGITS})::bigint %% %(over_microseconds)s::bigint
"""

SEPARATED = " || chr({}) || "

# Of a long one, the end is hashed, as options/lanes.py does.
LANE = f"""
(SELECT CASE WHEN length(l.name) <= {LANE_CHARACTERS_MAX} THEN l.name
        ELSE left(l.name, {LANE_CHARACTERS_MAX - LANE_DIGITS - 1}) || '~'
             || left(encode(sha256(convert_to(l.name, 'UTF8')), 'hex'), {LANE_DIGITS})
        END
   FROM (SELECT {{name}} AS name) l)
"""

# The text of a JSON value; a date and a UUID are tagged.
FROM_ARGUMENT = """
coalesce(item.kwargs #>> ARRAY[%({name})s, 'value'], item.kwargs ->> %({name})s)
"""
FROM_CONSTANT = "%({name})s::text"


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A value of the key that the jobs of a query have."""

    # A keyword argument of theirs; None: a constant.
    argument: str | None
    constant: str | None = ""


@dataclass(frozen=True, slots=True)
class Argument:
    """One keyword argument of the jobs that a query becomes."""

    name: str
    # Of COLUMN_AS_JSON; None: a constant, and not a column of the query.
    kind: str | None
    constant: str = "null"  # JSON text.


@dataclass(frozen=True, slots=True)
class Selected:
    """What became of a query whose rows were to be jobs."""

    count: int
    largest_bytes: int  # Of the arguments of a job.
    ids: Sequence[int]  # Empty unless they were asked for.
    keyless: int = 0  # Rows whose key has a NULL; if any, nothing was stored.
    # By a rule for keys: what became of calls (None: stored), with a job for each.
    first_ids: Mapping[str | None, int] = field(default_factory=dict)


def made(
    placement: Placement,
    *,
    arguments: Sequence[Argument],
    key: Sequence[KeyPart],
    lane: Sequence[KeyPart] = (),
    query: str,
    params: Sequence[Any],
) -> tuple[str, dict[str, Any]]:
    """Return the SQL of MADE and its parameters, for enqueue_from_select()."""
    named: dict[str, Any] = {}
    parts, columns = _built(arguments, named)
    offset = _offset(key, named) if placement.rule.has_offsets else "0::bigint"
    statement = MADE.format(
        arguments=parts,
        query=_by_name(query, params, named),
        offset=offset,
        lane=_lane(lane, named),
        columns=columns,
    )
    return statement, named


def enqueue_from_select(
    cursor: Cursor,
    placement: Placement,
    *,
    arguments: Sequence[Argument],
    key: Sequence[KeyPart] = (),
    lane: Sequence[KeyPart] = (),
    query: str,
    params: Sequence[Any],
    payload_bytes_max: int,
    with_ids: bool,
) -> Selected:
    """
    Store one job per row of *query*; none, when the largest is too large.

    Args:
        cursor: Django's or psycopg's; the caller commits.
        placement: Queue, task, priority, times.
        arguments: Keyword arguments; those with a kind are, in this order, the first
            columns of the query. Up to 50.
        key: What the offsets of a window are made of; empty: they are sampled.
        lane: What the lanes are made of; empty: there are none. A row of which a part
            is NULL waits for nobody.
        query: A SELECT with %s for its parameters, and %% for a percent sign.
        params: The parameters of query.
        payload_bytes_max: The most bytes of a job's arguments, as PostgreSQL writes
            JSON: with a blank after each colon and comma.
        with_ids: Whether to return the ids, in the order of the rows.

    Returns:
        Also in how many rows a part of the key is NULL; if in any, nothing is stored.
    """
    rule = placement.rule
    statement, named = made(
        placement,
        arguments=arguments,
        key=key,
        lane=lane,
        query=query,
        params=params,
    )
    stored = insert(MADE_OF_ROWS, rule, has_lanes=bool(lane), where=f"WHERE {IS_FINE}")
    cursor.execute(
        f"{statement}, stored AS ({stored}) {COUNTED}",
        {
            **placement.params(),
            **named,
            "bytes_max": payload_bytes_max,
            "with_ids": with_ids,
        },
    )
    count, largest_bytes, ids, keyless = one_row(cursor)
    return Selected(count, largest_bytes, ids or [], keyless)


def _built(arguments: Sequence[Argument], named: dict[str, Any]) -> tuple[str, str]:
    """Return what builds the arguments, and the columns of the query that it needs."""
    parts: list[str] = []
    columns: list[str] = []
    for place, argument in enumerate(arguments):
        named[f"name{place}"] = argument.name
        if argument.kind is None:
            named[f"constant{place}"] = argument.constant
            value = f"%(constant{place})s::jsonb"
        else:
            columns.append(f"c{len(columns)}")
            value = COLUMN_AS_JSON[argument.kind].format(column=f"source.{columns[-1]}")
        parts.append(f"%(name{place})s::text, {value}")
    return ", ".join(parts), ", ".join(columns or ["c0"])


def _offset(key: Sequence[KeyPart], named: dict[str, Any]) -> str:
    """Return the SQL of the offset of a row of item."""
    if not key:
        return SAMPLED
    texts = ["%(task)s", *_texts(key, named, "key")]
    return HASHED.format(key=SEPARATED.format(ord(SEPARATOR)).join(texts))


def _lane(lane: Sequence[KeyPart], named: dict[str, Any]) -> str:
    """Return the SQL of the lane of a row of item."""
    if not lane:
        return "NULL::text"
    texts = _texts(lane, named, "lane")
    return LANE.format(name=SEPARATED.format(ord(LANE_SEPARATOR)).join(texts))


def _texts(
    parts: Sequence[KeyPart], named: dict[str, Any], prefix: str
) -> Iterator[str]:
    """Yield the SQL of the text of each part, whose names become parameters."""
    for place, part in enumerate(parts):
        name = f"{prefix}{place}"
        is_constant = part.argument is None
        named[name] = part.constant if is_constant else part.argument
        yield (FROM_CONSTANT if is_constant else FROM_ARGUMENT).format(name=name)


def _by_name(query: str, params: Sequence[Any], named: dict[str, Any]) -> str:
    """Return *query* with names for its places: psycopg takes one kind of them."""
    first, *pieces = query.replace("%%", "\0").split("%s")
    named.update({f"param{place}": value for place, value in enumerate(params)})
    joined = first + "".join(
        f"%(param{place})s{piece}" for place, piece in enumerate(pieces)
    )
    return joined.replace("\0", "%%")
