"""
Enqueue: store jobs, in the caller's transaction.

The third hop of a job's life. Everything that can be wrong with a job was found
before (tasks/payload.py), so the caller's transaction stays usable.

Every job is stored by one statement, in one of three forms: the arguments of one call,
an array of them, or the rows of a query (queues/enqueue_rows.py). What kind of call it
is, a rule says (queues/rules.py). Those with a dedup key hand the same values to a
function of the database (queues/unique.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from django_pgqueue.postgres.bulk import Items, as_array, chunks
from django_pgqueue.postgres.cursor import Cursor, one_row
from django_pgqueue.queues.rules import (
    ACCUMULATE,
    PLAIN,
    SAMPLED,
    SPREAD,
    WINDOW_START,
    Rule,
)

# Locks: as insert(). The common case, which waits for nothing: an INSERT in a function,
# so that it is not planned anew for every job. Its signature has the types; places cost
# the driver less than names.
STORE = "SELECT pgqueue_store(%s, %s, %s, %s, %s, %s, %s)"

# Of several statements of one call: all have the window of the first.
PIN = f"SELECT {WINDOW_START}"


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
    # Of a window that begins at the time above, or now.
    over_microseconds: int | None = None
    # Where in it a single job is due; None: that is sampled.
    offset_microseconds: int | None = None
    # Of calls that wait for others of their key: for how many, 1 to
    # ACCUMULATE_SIZE_MAX, and how long.
    accumulate_key: str | None = None
    accumulate_size: int | None = None
    accumulate_within: timedelta | None = None
    # Of a single job: where it waits for others. Many have lanes of their own, or none.
    lane: str | None = None
    has_lanes: bool = False
    # How many of a lane run at a time; None: one, and in order.
    lane_capacity: int | None = None
    # Seconds from one of a lane to the next, and how many may be ahead of that; None:
    # as soon as they can.
    lane_spacing: float | None = None
    lane_burst: int | None = None
    # What else holds in it: see models/columns.py.
    lane_policy: str | None = None

    @property
    def rule(self) -> Rule:
        """What kind of call it is."""
        if self.accumulate_key is not None:
            return ACCUMULATE
        return PLAIN if self.over_microseconds is None else SPREAD

    @property
    def is_bare(self) -> bool:
        """Whether the jobs wait for nothing, never expire, and are of no schedule."""
        return (
            self.schedule_id is None
            and self.run_at is None
            and self.delay is None
            and self.expire_at is None
            and self.expire_in is None
            and self.over_microseconds is None
            and self.accumulate_key is None
            and self.lane is None
        )

    def params(self) -> dict[str, Any]:
        """Return the values by the names that the statements use."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Form:
    """Where a statement has the arguments, the offsets and the places of its rows."""

    args: str
    kwargs: str
    offset: str
    place: str
    lane: str
    source: str = ""


ONE = Form(
    args="%(args)s::jsonb",
    kwargs="%(kwargs)s::jsonb",
    offset=f"coalesce(%(offset_microseconds)s::bigint, {SAMPLED})",
    place="1",
    lane="%(lane)s::text",
)

# All arguments are one JSON array: a list of 5,000 texts costs psycopg, which quotes
# each, more time than all the rest takes. An element that is neither array nor object
# is refused by the table.
MANY = Form(
    args="CASE WHEN jsonb_typeof(item.value) = 'array' THEN item.value ELSE '[]' END",
    kwargs="CASE WHEN jsonb_typeof(item.value) = 'array' THEN '{}' ELSE item.value END",
    offset=f"coalesce(item.microseconds, {SAMPLED})",
    place="item.place",
    lane="NULL",
    source="jsonb_array_elements(%(items)s::jsonb) WITH ORDINALITY"
    " AS item(value, place)",
)
# Where there are none, the function has no rows, and ROWS FROM fills up with NULL.
MANY_WITH_MORE = replace(
    MANY,
    lane="item.lane",
    source="""ROWS FROM (jsonb_array_elements(%(items)s::jsonb),
                  unnest(%(offsets)s::bigint[]),
                  jsonb_array_elements_text(%(lanes)s::jsonb))
       WITH ORDINALITY AS item(value, microseconds, lane, place)""",
)


def values(form: Form, rule: Rule) -> str:
    """Return the SQL of what every job gets, from its queue to when it expires."""
    return f"""
       %(queue)s, %(task)s, {form.args}, {form.kwargs}, %(headers)s::jsonb,
       %(priority)s, %(max_attempts)s, {rule.due.format(offset=form.offset)},
       coalesce(%(expire_at)s::timestamptz,
                clock_timestamp() + %(expire_in)s::interval)"""


# What a job says of its lane, and what it is to PostgreSQL.
OF_LANE = {
    "lane_capacity": "integer",
    "lane_spacing": "float8",
    "lane_burst": "integer",
    "lane_policy": "text",
}


# Locks: none that another enqueue waits for. ORDER BY: ids rise in the caller's order,
# and RETURNING answers in it.
@cache
def insert(
    form: Form,
    rule: Rule,
    *,
    has_lanes: bool = False,
    where: str = "",
    returning: str = "id",
) -> str:
    """Return the statement that stores jobs by a rule, in lanes or not."""
    before, tables = "", [form.source] if form.source else []
    if rule.before is not None:
        name, query = rule.before
        before = f"WITH {name} AS MATERIALIZED ({query})"
        tables.append(name)
    columns = f", lane, {', '.join(OF_LANE)}" if has_lanes else ""
    of_lane = [
        f"CASE WHEN {form.lane} IS NOT NULL THEN %({column})s::{kind} END"
        for column, kind in OF_LANE.items()
    ]
    lanes = f", {form.lane}, {', '.join(of_lane)}" if has_lanes else ""
    return f"""{before}
INSERT INTO pgqueue_job (queue, task, args, kwargs, headers, priority, max_attempts,
                         run_after, expires_at, schedule_id{rule.columns}{columns})
SELECT {values(form, rule)},
       %(schedule_id)s{rule.values.format(place=form.place)}{lanes}
  {"FROM" if tables else ""} {", ".join(tables)} {where}
 {f"ORDER BY {form.place}" if form.source else ""}
RETURNING {returning}
"""


def enqueue(cursor: Cursor, placement: Placement, *, args: str, kwargs: str) -> int:
    """
    Store one job and return its id: one round trip.

    Args:
        cursor: Django's or psycopg's; the caller commits.
        placement: Queue, task, priority, times.
        args: A JSON array as text.
        kwargs: A JSON object as text.
    """
    if not placement.is_bare:
        return enqueue_timed(cursor, placement, args=args, kwargs=kwargs)[0]
    at = placement
    cursor.execute(
        STORE,
        (at.queue, at.task, args, kwargs, at.headers, at.priority, at.max_attempts),
    )
    [(job_id,)] = cursor.fetchall()
    return int(job_id)


def enqueue_timed(
    cursor: Cursor, placement: Placement, *, args: str, kwargs: str
) -> tuple[int, datetime]:
    """Store one job; return its id, and when it was enqueued. As enqueue()."""
    statement = insert(
        ONE,
        placement.rule,
        has_lanes=placement.lane is not None,
        returning="id, enqueued_at",
    )
    cursor.execute(statement, {**placement.params(), "args": args, "kwargs": kwargs})
    job_id, enqueued_at = one_row(cursor)
    return job_id, enqueued_at


def enqueue_many(
    cursor: Cursor, placement: Placement, items: Sequence[Items]
) -> list[int]:
    """
    Store one job per argument in *items* and return their ids in the same order.

    One statement per rows_max of the rule or BULK_CHARACTERS_MAX, whichever comes
    first; what one of the items holds is never divided. The caller opens the
    transaction that makes several statements all or nothing. Items either all have
    offsets, or none.
    """
    ids: list[int] = []
    rule = placement.rule
    found = list(chunks(items, rule.rows_max))
    if len(found) > 1:
        placement = pinned(cursor, placement)
    params = placement.params()
    for chunk in found:
        params["items"] = as_array(chunk)
        form = many(rule, has_lanes=placement.has_lanes)
        if form is MANY_WITH_MORE:
            params["offsets"] = as_offsets(chunk)
            params["lanes"] = as_lanes(chunk)
        cursor.execute(insert(form, rule, has_lanes=placement.has_lanes), params)
        ids.extend(job_id for (job_id,) in cursor.fetchall())
    return ids


def many(rule: Rule, *, has_lanes: bool = False) -> Form:
    """Return the form of many calls by a rule."""
    return MANY_WITH_MORE if rule.has_offsets or has_lanes else MANY


def pinned(cursor: Cursor, placement: Placement) -> Placement:
    """Return *placement* with a window that begins for all statements at once."""
    if not placement.rule.has_offsets or placement.run_at is not None:
        return placement
    cursor.execute(PIN, placement.params())
    return replace(placement, run_at=one_row(cursor)[0])


def as_offsets(chunk: Sequence[Items]) -> str | None:
    """Return the offsets of some jobs as an array in SQL; None: they have none."""
    # Text, since psycopg would look at each number.
    offsets = [str(offset) for part in chunk for offset in part.offsets]
    return f"{{{','.join(offsets)}}}" if offsets else None


def as_lanes(chunk: Sequence[Items]) -> str | None:
    """Return the lanes of some jobs as an array in JSON; None: they have none."""
    lanes = [lane for part in chunk for lane in part.lanes]
    return json.dumps(lanes) if lanes else None
