"""
Schedules: their rows, as code declares them and as people change them.

Whatever changes a row raises its revision, so that a scheduler which has read an
earlier one does nothing. Whatever gives it another timetable moves ticks_from to now:
the new times of yesterday are not made up for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django_pgqueue.postgres import keys
from django_pgqueue.postgres.cursor import Cursor, column, has_row, one_row, record

# Tells whoever issues ticks to look; "!" is in no queue's name.
HINT = "!schedules"

# What code declares, a user fills in, and an override changes.
COLUMNS = (
    *("task", "args", "kwargs", "queue", "priority", "expression", "every_seconds"),
    *("tz", "catch_up", "overlap", "jitter_seconds"),
    *("message_name", "message_key", "message_payload"),
)
# Those that say when it is due.
TIMETABLE = ("expression", "every_seconds", "tz")

# Locks: an advisory lock until the caller's transaction ends: one at a time declares,
# however many workers start at once.
LOCK = f"SELECT pg_advisory_xact_lock(%(class)s, {keys.INSTALLATION})"

# A payload is any JSON, so one that is a text would not tell whether it was decoded.
_SHOWN_COLUMNS = ", ".join(COLUMNS).replace(
    "message_payload", "message_payload::text AS message_payload"
)
SHOWN = f"""
SELECT id, name, source, {_SHOWN_COLUMNS}, declared, last_declared_at, withdrawn_at,
       overridden_at, overridden_by, paused_at, paused_by, pause_reason, created_at,
       created_by, revision, ticks_from, last_tick, next_tick, error
  FROM pgqueue_schedule
"""
# Locks: none.
ALL = f"{SHOWN} ORDER BY name"
ONE = f"{SHOWN} WHERE name = %(name)s"
# Locks: row locks on the schedules that are read, until the caller's transaction ends.
# In the order of their names, so that two who take several do not deadlock; a tick
# takes one only.
TAKE = f"{SHOWN} WHERE name = ANY(%(names)s::text[]) ORDER BY name FOR UPDATE"

# As a number: Django's cursors give times without a zone where USE_TZ is off.
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"

# Locks: a row lock on the new row; a second one of the same name waits for it.
INSERT = f"""
INSERT INTO pgqueue_schedule (name, source, {", ".join(COLUMNS)}, declared,
                              last_declared_at, created_by)
VALUES (%(name)s, %(source)s, %(task)s, %(args)s::jsonb, %(kwargs)s::jsonb, %(queue)s,
        %(priority)s, %(expression)s, %(every_seconds)s, %(tz)s, %(catch_up)s,
        %(overlap)s, %(jitter_seconds)s, %(message_name)s, %(message_key)s,
        %(message_payload)s::jsonb, %(declared)s::jsonb,
        CASE WHEN %(declared)s IS NOT NULL THEN clock_timestamp() END,
        nullif(%(by)s::text, ''))
ON CONFLICT (name) DO NOTHING
RETURNING id
"""

# Locks: a row lock on the schedule. overridden: true: somebody changes what code
# declares; false: it is as declared; NULL: as it was. The next tick is reckoned anew
# only with another timetable.
CHANGE = """
UPDATE pgqueue_schedule
   SET task = %(task)s, args = %(args)s::jsonb, kwargs = %(kwargs)s::jsonb,
       queue = %(queue)s, priority = %(priority)s, expression = %(expression)s,
       every_seconds = %(every_seconds)s, tz = %(tz)s, catch_up = %(catch_up)s,
       overlap = %(overlap)s, jitter_seconds = %(jitter_seconds)s,
       message_name = %(message_name)s, message_key = %(message_key)s,
       message_payload = %(message_payload)s::jsonb,
       overridden_at = CASE %(overridden)s::bool WHEN true THEN clock_timestamp()
                            WHEN false THEN NULL ELSE overridden_at END,
       overridden_by = CASE %(overridden)s::bool WHEN true THEN nullif(%(by)s::text, '')
                            WHEN false THEN NULL ELSE overridden_by END,
       revision = revision + 1,
       ticks_from = CASE WHEN %(new_times)s THEN clock_timestamp() ELSE ticks_from END,
       next_tick = CASE WHEN %(new_times)s THEN NULL ELSE next_tick END,
       error = NULL
 WHERE id = %(id)s
RETURNING id
"""

# Locks: a row lock on the schedule. One that was withdrawn has no ticks to make up for.
DECLARE = """
UPDATE pgqueue_schedule
   SET declared = %(declared)s::jsonb, last_declared_at = clock_timestamp(),
       ticks_from = CASE WHEN withdrawn_at IS NULL THEN ticks_from
                         ELSE clock_timestamp() END,
       next_tick = CASE WHEN withdrawn_at IS NULL THEN next_tick END,
       error = CASE WHEN withdrawn_at IS NULL THEN error END,
       revision = revision + CASE WHEN withdrawn_at IS NULL THEN 0 ELSE 1 END,
       withdrawn_at = NULL
 WHERE id = %(id)s
"""

# Locks: row locks on the schedules that code does not declare any more.
WITHDRAW = """
UPDATE pgqueue_schedule
   SET withdrawn_at = clock_timestamp(), revision = revision + 1
 WHERE id = ANY(ARRAY(
       SELECT id FROM pgqueue_schedule
        WHERE source = 'code' AND withdrawn_at IS NULL
          AND name <> ALL(%(names)s::text[])
        ORDER BY name FOR UPDATE))
RETURNING name
"""

# Locks: a row lock on the schedule, until the caller's transaction ends.
PAUSE = """
UPDATE pgqueue_schedule
   SET paused_at = clock_timestamp(), paused_by = nullif(%(by)s::text, ''),
       pause_reason = nullif(%(reason)s::text, ''), revision = revision + 1
 WHERE name = %(name)s AND paused_at IS NULL
RETURNING id
"""
# Locks: as PAUSE. What was due meanwhile is not made up for. Without a next tick and
# with an error a schedule would rest until all are reckoned, which may be in an hour.
RESUME = """
UPDATE pgqueue_schedule
   SET paused_at = NULL, paused_by = NULL, pause_reason = NULL,
       ticks_from = clock_timestamp(), next_tick = NULL, error = NULL,
       revision = revision + 1
 WHERE name = %(name)s AND paused_at IS NOT NULL
RETURNING id
"""

# Locks: row locks on what is deleted. Of code only what it does not declare any more.
DELETE = """
WITH gone AS (
    DELETE FROM pgqueue_schedule
     WHERE name = %(name)s AND (source = 'user' OR withdrawn_at IS NOT NULL)
    RETURNING id),
ticks AS (
    DELETE FROM pgqueue_tick WHERE schedule_id = ANY(ARRAY(SELECT id FROM gone)))
SELECT id FROM gone
"""


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule as its row is; the names are those of the columns."""

    id: int
    name: str
    source: str
    task: str
    args: Any
    kwargs: Any
    queue: str | None
    priority: int | None
    expression: str | None
    every_seconds: int | None
    tz: str
    catch_up: str
    overlap: str
    jitter_seconds: int
    # What is published, and then there is no task; None: a task is enqueued.
    message_name: str | None
    message_key: str | None
    message_payload: Any
    declared: Mapping[str, Any] | None
    last_declared_at: datetime | None
    withdrawn_at: datetime | None
    overridden_at: datetime | None
    overridden_by: str | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    created_at: datetime
    created_by: str | None
    revision: int
    ticks_from: datetime
    last_tick: datetime | None
    next_tick: datetime | None
    error: str | None

    @property
    def has_ticks(self) -> bool:
        """Whether it is neither paused nor withdrawn."""
        return self.paused_at is None and self.withdrawn_at is None

    @property
    def drift(self) -> dict[str, tuple[Any, Any]]:
        """What was changed here: (what code declares, what holds), by column."""
        if self.declared is None:
            return {}
        pairs = {
            name: (self.declared.get(name), getattr(self, name)) for name in COLUMNS
        }
        return {name: pair for name, pair in pairs.items() if not is_same(*pair)}

    @property
    def declared_values(self) -> dict[str, Any]:
        """What code declares, also what it did not say before it could."""
        said = self.declared or {}
        return {name: said.get(name) for name in COLUMNS}


def find_all(cursor: Cursor) -> list[ScheduleRow]:
    """Return all schedules by name."""
    cursor.execute(ALL)
    return read_rows(cursor)


def find_one(cursor: Cursor, name: str) -> ScheduleRow | None:
    """Return the schedule that is called *name*, or None."""
    cursor.execute(ONE, {"name": name})
    return next(iter(read_rows(cursor)), None)


def take(cursor: Cursor, names: Sequence[str]) -> list[ScheduleRow]:
    """Lock these schedules until the caller's transaction ends, and return them."""
    cursor.execute(TAKE, {"names": list(names)})
    return read_rows(cursor)


def database_now(cursor: Cursor) -> datetime:
    """Return the time by the database's clock, in UTC."""
    cursor.execute(NOW)
    return datetime.fromtimestamp(one_row(cursor)[0], UTC)


def declare_all(
    cursor: Cursor, declared: Mapping[str, Mapping[str, Any]], *, revives: bool
) -> tuple[list[str], list[str], list[str]]:
    """
    Write what code declares; the caller has a transaction open.

    A schedule that somebody has changed stays as it is, and keeps what code says beside
    it. One that a user has made under the same name is left alone.

    Args:
        cursor: An open cursor.
        declared: By name, a value for each of COLUMNS; args and kwargs as data.
        revives: Whether one that was withdrawn has ticks again.

    Returns:
        The names of those that are new or have changed, of those that a user has made,
        and of those that stay withdrawn.
    """
    cursor.execute(LOCK, {"class": keys.SCHEDULES})
    known = {row.name: row for row in take(cursor, sorted(declared))}
    changed: list[str] = []
    taken: list[str] = []
    resting: list[str] = []
    for name in sorted(declared):
        values, row = declared[name], known.get(name)
        if row is None:
            if insert(cursor, name, values, source="code"):
                changed.append(name)
            continue
        if row.source != "code":
            taken.append(name)
            continue
        if row.withdrawn_at is not None and not revives:
            resting.append(name)
            continue
        follows = row.overridden_at is None and bool(differing(row, values))
        if follows:
            change(cursor, row, values)
        if follows or row.withdrawn_at is not None:
            changed.append(name)
        cursor.execute(DECLARE, {"id": row.id, "declared": json.dumps(dict(values))})
    return changed, taken, resting


def withdraw_others(cursor: Cursor, names: Sequence[str]) -> list[str]:
    """
    Let schedules of code rest that are not among *names*; return which were.

    They keep their row, with its pause and its changes, in case they come back.
    """
    return sorted(column(cursor, WITHDRAW, names=list(names)))


def insert(
    cursor: Cursor, name: str, values: Mapping[str, Any], *, source: str, by: str = ""
) -> int | None:
    """Make a schedule and return its id; None: its name is taken."""
    declared = json.dumps(dict(values)) if source == "code" else None
    params = {**_as_params(values), "name": name, "source": source, "by": by}
    return record(int, cursor, INSERT, **params, declared=declared)


def change(
    cursor: Cursor,
    row: ScheduleRow,
    values: Mapping[str, Any],
    *,
    overridden: bool | None = None,
    by: str = "",
) -> None:
    """
    Give a schedule other *values*; the caller has locked it with take().

    Args:
        cursor: An open cursor.
        row: As it was taken.
        values: A value for each of COLUMNS.
        overridden: True: somebody changes what code declares; False: it is as declared
            again; None: neither.
        by: Who, for an override.
    """
    new_times = any(name in TIMETABLE for name in differing(row, values))
    params = {
        **_as_params(values),
        "id": row.id,
        "overridden": overridden,
        "by": by,
        "new_times": new_times,
    }
    cursor.execute(CHANGE, params)


def pause(cursor: Cursor, name: str, *, by: str = "", reason: str = "") -> bool:
    """
    Pause a schedule; False: it was paused, and who and why stay as they are.

    Args:
        cursor: An open cursor; the caller commits.
        name: Of the schedule.
        by: Who pauses, at most 150 characters; "": nobody is named.
        reason: Why; "": not said.
    """
    return has_row(cursor, PAUSE, name=name, by=by, reason=reason)


def resume(cursor: Cursor, name: str) -> bool:
    """End the pause of a schedule; False: it was not paused."""
    return has_row(cursor, RESUME, name=name)


def delete(cursor: Cursor, name: str) -> bool:
    """Delete a schedule and its ticks; False: there is none, or code declares it."""
    return has_row(cursor, DELETE, name=name)


def differing(row: ScheduleRow, values: Mapping[str, Any]) -> list[str]:
    """Return the columns that have other values than *values*."""
    return [name for name in COLUMNS if not is_same(getattr(row, name), values[name])]


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values are the same as JSON: to Python, True is 1."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(
            is_same(value, other[name]) for name, value in one.items()
        )
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


def _as_params(values: Mapping[str, Any]) -> dict[str, Any]:
    params = {name: values[name] for name in COLUMNS}
    for name in ("args", "kwargs"):
        params[name] = json.dumps(params[name])
    if params["message_name"] is not None:
        params["message_payload"] = json.dumps(params["message_payload"])
    return params


def read_rows(cursor: Cursor) -> list[ScheduleRow]:
    """Return what a query of SHOWN has found."""
    names = [column[0] for column in cursor.description]
    return [
        ScheduleRow(**_as_data(dict(zip(names, row, strict=True))))
        for row in cursor.fetchall()
    ]


def _as_data(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with its JSON as data: Django's cursors give it as text."""
    for name in ("args", "kwargs", "declared", "message_payload"):
        if isinstance(row[name], str):
            row[name] = json.loads(row[name])
    return row
