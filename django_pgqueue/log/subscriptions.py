"""
Subscriptions: their rows, as code declares them and as people change them.

publish() joins them in the statement that stores a message, so a row counts from the
commit that makes it. Nothing here deletes one, and nothing but a person disables one:
a subscription that no code declares any more is shown as stale.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_pgqueue.postgres import keys
from django_pgqueue.postgres.cursor import Cursor, has_row, record

# Code that declares a subscription says so at least this often while a worker runs.
DECLARED_EVERY = timedelta(hours=1)

# One that code has declared, and for so long no more, is stale.
STALE_AFTER = timedelta(days=7)
IS_STALE = f"""
(source = 'code' AND disabled_at IS NULL
 AND last_declared_at < clock_timestamp() - interval '{STALE_AFTER.days} days')
"""

# Locks: an advisory lock until the caller's transaction ends: one at a time declares,
# however many workers start at once.
LOCK = f"SELECT pg_advisory_xact_lock(%(class)s, {keys.INSTALLATION})"

SHOWN = f"""
SELECT id, source, pattern, topic, regex, payload_filter, task, queue, priority,
       max_attempts, headers, lane_by, lane_capacity, lane_spacing, lane_burst,
       lane_policy, backlog_max, backlog_on_full, since_epoch, start,
       backfill_position, backlog, full_at, held_at, disabled_at, disabled_by,
       disabled_reason, last_declared_at, created_at, {IS_STALE} AS is_stale
  FROM pgqueue_subscription
"""
# Locks: none.
ALL = f"{SHOWN} ORDER BY queue, pattern, task"

# Locks: a row lock on the row of the epoch, so that subscriptions get one after
# another; publishers read it without. A message stores the epoch that its statement
# saw together with the subscriptions that it saw. What it stores and this row come into
# sight with one commit: a message of an older epoch has no job of this subscription,
# and one of this epoch or a later one has.
INSERT = """
WITH state AS (
    INSERT INTO pgqueue_log_state AS s (id, epoch) VALUES (1, 1)
    ON CONFLICT (id) DO UPDATE SET epoch = s.epoch + 1
    RETURNING epoch
), told AS (
    SELECT CASE WHEN %(ago)s::interval IS NULL THEN %(start)s::text
                ELSE to_char((clock_timestamp() - %(ago)s::interval) AT TIME ZONE 'UTC',
                             'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"') END AS start
)
INSERT INTO pgqueue_subscription
       (source, pattern, topic, regex, payload_filter, task, queue, priority,
        max_attempts, headers, lane_by, lane_capacity, lane_spacing, lane_burst,
        lane_policy, backlog_max, backlog_on_full, since_epoch, start,
        backfill_position, backfill_xid, last_declared_at)
SELECT %(source)s::text, %(pattern)s, %(topic)s, %(regex)s, %(payload_filter)s::jsonb,
       %(task)s, %(queue)s, %(priority)s, %(max_attempts)s, %(headers)s::jsonb,
       %(lane_by)s::text[], %(lane_capacity)s, %(lane_spacing)s, %(lane_burst)s,
       %(lane_policy)s, %(backlog_max)s, %(backlog_on_full)s, state.epoch, told.start,
       CASE WHEN told.start <> 'latest' THEN 0 END,
       CASE WHEN told.start <> 'latest' THEN pg_current_xact_id()::text::bigint END,
       CASE WHEN %(source)s::text = 'code' THEN clock_timestamp() END
  FROM state, told
ON CONFLICT (queue, pattern, task) DO NOTHING
RETURNING id
"""

# Locks: a row lock on the subscription. Where it began stays as it was.
DECLARE = """
UPDATE pgqueue_subscription
   SET task = %(task)s, topic = %(topic)s, regex = %(regex)s,
       payload_filter = %(payload_filter)s::jsonb, priority = %(priority)s,
       max_attempts = %(max_attempts)s, headers = %(headers)s::jsonb,
       lane_by = %(lane_by)s::text[], lane_capacity = %(lane_capacity)s,
       lane_spacing = %(lane_spacing)s, lane_burst = %(lane_burst)s,
       lane_policy = %(lane_policy)s, backlog_max = %(backlog_max)s,
       backlog_on_full = %(backlog_on_full)s, last_declared_at = clock_timestamp()
 WHERE id = %(id)s
"""

# Locks: row locks on the subscriptions that were not declared for a while, in the order
# of their ids.
DECLARE_AGAIN = f"""
UPDATE pgqueue_subscription
   SET last_declared_at = clock_timestamp()
 WHERE id = ANY(ARRAY(
       SELECT s.id FROM pgqueue_subscription s
         JOIN unnest(%(queues)s::text[], %(patterns)s::text[], %(tasks)s::text[])
              AS d(queue, pattern, task) USING (queue, pattern, task)
        WHERE s.source = 'code' AND s.last_declared_at
              < clock_timestamp() - interval '{DECLARED_EVERY.seconds} seconds'
        ORDER BY s.id FOR UPDATE OF s))
"""

# Locks: a row lock on the subscription, until the caller's transaction ends.
DISABLE = """
UPDATE pgqueue_subscription
   SET disabled_at = clock_timestamp(), disabled_by = nullif(%(by)s::text, ''),
       disabled_reason = nullif(%(reason)s::text, '')
 WHERE id = %(id)s AND disabled_at IS NULL
RETURNING id
"""
# Locks: as DISABLE.
ENABLE = """
UPDATE pgqueue_subscription
   SET disabled_at = NULL, disabled_by = NULL, disabled_reason = NULL
 WHERE id = %(id)s AND disabled_at IS NOT NULL
RETURNING id
"""
# Locks: as DISABLE. One that code still declares would come back with its next deploy,
# and begin anew.
DELETE = f"""
DELETE FROM pgqueue_subscription
 WHERE id = %(id)s AND (source = 'user' OR {IS_STALE} OR
       disabled_at IS NOT NULL AND last_declared_at
       < clock_timestamp() - interval '{STALE_AFTER.days} days')
RETURNING id
"""

# Columns in which a row may say something else than the code; those in JSON besides.
COMPARED = (
    *("task", "topic", "regex", "priority", "max_attempts"),
    *("lane_by", "lane_capacity", "lane_spacing", "lane_burst", "lane_policy"),
    *("backlog_max", "backlog_on_full"),
)


class Wanted(NamedTuple):
    """A subscription as code declares it."""

    queue: str
    pattern: str
    task: str
    # Names that the task had in earlier days, whose rows are this one.
    aliases: tuple[str, ...]
    topic: str | None
    regex: str | None
    payload_filter: str | None  # JSON text.
    priority: int
    max_attempts: int
    headers: str  # JSON text.
    # "latest", "earliest", a time in ISO 8601; "" where ago is given.
    start: str
    ago: timedelta | None
    # What of a message makes the lane of its job; None: it has none, empty: that of
    # the task. The others as of a job: see OF_LANE in queues/enqueue.py.
    lane_by: list[str] | None = None
    lane_capacity: int | None = None
    lane_spacing: float | None = None
    lane_burst: int | None = None
    lane_policy: str | None = None
    # How many jobs may wait, and what is done beyond that; None: any number.
    backlog_max: int | None = None
    backlog_on_full: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the task."""
        return self.task, *self.aliases

    def __str__(self) -> str:
        return f"{self.pattern} → {self.queue} ({self.task})"


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """A subscription as its row is; the names are those of the columns."""

    id: int
    source: str
    pattern: str
    topic: str | None
    regex: str | None
    payload_filter: Any
    task: str
    queue: str
    priority: int
    max_attempts: int
    headers: Any
    lane_by: list[str] | None
    lane_capacity: int | None
    lane_spacing: float | None
    lane_burst: int | None
    lane_policy: str | None
    backlog_max: int | None
    backlog_on_full: str | None
    since_epoch: int
    start: str
    # NULL: all that it began with, or missed while it was held, has its job.
    backfill_position: int | None
    # Jobs, as the leader counted them last; since when there are too many, and since
    # when it makes none for that.
    backlog: int | None
    full_at: datetime | None
    held_at: datetime | None
    disabled_at: datetime | None
    disabled_by: str | None
    disabled_reason: str | None
    last_declared_at: datetime | None
    created_at: datetime
    # Declared by code, and for a week no more.
    is_stale: bool

    def differs(self, wanted: Wanted) -> bool:
        """Whether the row says something else than the code."""
        return (
            any(getattr(self, name) != getattr(wanted, name) for name in COMPARED)
            or self.payload_filter != _as_data(wanted.payload_filter)
            or self.headers != _as_data(wanted.headers)
        )

    def __str__(self) -> str:
        return f"{self.pattern} → {self.queue} ({self.task})"


class Declared(NamedTuple):
    """What declare_all() has done: subscriptions, as text."""

    added: list[str]
    changed: list[str]
    # A user has made one of that queue, pattern and task; it was left alone.
    taken: list[str]
    # Not made by a worker, since its queue has another task for the same pattern.
    put_off: list[str]


def find_all(cursor: Cursor) -> list[SubscriptionRow]:
    """Return all subscriptions, by queue, pattern and task."""
    cursor.execute(ALL)
    return _rows(cursor)


def insert(cursor: Cursor, wanted: Wanted, *, source: str = "code") -> int | None:
    """Make a subscription and return its id; None: there is one already."""
    return record(int, cursor, INSERT, **_params(wanted), source=source)


def declare_all(
    cursor: Cursor, wanted: Sequence[Wanted], *, migrates: bool
) -> Declared:
    """
    Write what code declares; the caller has a transaction open.

    Args:
        cursor: An open cursor.
        wanted: What the code declares.
        migrates: Whether this is a migration, which may give the row of an alias the
            new name. A worker that starts may run older code than the last migration:
            it makes no second row where its queue has one for another task of the same
            pattern, since each message would then have two jobs.
    """
    cursor.execute(LOCK, {"class": keys.SUBSCRIPTIONS})
    rows = find_all(cursor)
    known = {(row.queue, row.pattern, row.task): row for row in rows}
    served = {(row.queue, row.pattern) for row in rows if row.disabled_at is None}
    done = Declared([], [], [], [])
    for said in sorted(wanted, key=lambda each: each[:3]):
        each = said
        row = _own_row(known, each)
        if row is None:
            if not migrates and (each.queue, each.pattern) in served:
                done.put_off.append(str(each))
            elif insert(cursor, each) is not None:
                done.added.append(str(each))
            continue
        if row.source != "code":
            done.taken.append(str(each))
            continue
        if not migrates:
            each = each._replace(task=row.task)
        if row.differs(each):
            done.changed.append(str(each))
        cursor.execute(DECLARE, {**_params(each), "id": row.id})
    return done


def declare_again(cursor: Cursor, wanted: Sequence[Wanted]) -> None:
    """Note that code still declares these; once an hour it is written."""
    each = [(one, name) for one in wanted for name in one.names]
    cursor.execute(
        DECLARE_AGAIN,
        {
            "queues": [one.queue for one, _ in each],
            "patterns": [one.pattern for one, _ in each],
            "tasks": [name for _, name in each],
        },
    )


def disable(
    cursor: Cursor, subscription_id: int, *, by: str = "", reason: str = ""
) -> bool:
    """
    Let messages make no jobs of it; False: it was disabled, or there is none.

    Args:
        cursor: An open cursor; the caller commits.
        subscription_id: Of the subscription.
        by: Who, at most 150 characters; "": nobody is named.
        reason: Why, at most 2,000 characters; "": not said.
    """
    return has_row(cursor, DISABLE, id=subscription_id, by=by, reason=reason)


def enable(cursor: Cursor, subscription_id: int) -> bool:
    """Let it route again what is published from now on; False: it was enabled."""
    return has_row(cursor, ENABLE, id=subscription_id)


def delete(cursor: Cursor, subscription_id: int) -> bool:
    """Delete it; False: there is none, or code has declared it lately."""
    return has_row(cursor, DELETE, id=subscription_id)


def _own_row(
    known: dict[tuple[str, str, str], SubscriptionRow], wanted: Wanted
) -> SubscriptionRow | None:
    """Return the row of a declaration, also under an earlier name of its task."""
    for name in wanted.names:
        row = known.get((wanted.queue, wanted.pattern, name))
        if row is not None:
            return row
    return None


def _params(wanted: Wanted) -> dict[str, Any]:
    return {name: getattr(wanted, name) for name in Wanted._fields if name != "aliases"}


def _rows(cursor: Cursor) -> list[SubscriptionRow]:
    names = [column[0] for column in cursor.description]
    rows = []
    for values in cursor.fetchall():
        row = dict(zip(names, values, strict=True))
        for name in ("payload_filter", "headers"):
            row[name] = _as_data(row[name])
        rows.append(SubscriptionRow(**row))
    return rows


def _as_data(value: Any) -> Any:
    """Return JSON as data: Django's cursors give it as text."""
    return json.loads(value) if isinstance(value, str) else value
