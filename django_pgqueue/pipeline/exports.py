"""
Exports: which days of the archive are where, and whether that is still all of them.

A day is closed when it has ended and nobody can add to it any more. Rows of the archive
get the clock of the statement that writes them, and a statement locks the archive
(ROW EXCLUSIVE) before it waits for anything else. So who could still write a row of a
day that has ended is among those that hold, or wait for, that lock right after its end;
when all of these transactions are over, the day is closed. Locks are shown to every
role, those of prepared transactions too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from psycopg import sql

from django_pgqueue.postgres.cursor import Cursor, column, first, one_row, rows, value
from django_pgqueue.postgres.day_tables import ARCHIVE

DAY = timedelta(days=1)

# A day has ended when it is over for so long: a clock that is set back a little, or a
# statement that was stopped before it took its first lock, is still waited for.
MARGIN = timedelta(seconds=60)

# Locks: none; here and below, where nothing else is said. The day that has not ended.
UNENDED = """
SELECT ((statement_timestamp() - %(margin)s::interval) AT TIME ZONE 'UTC')::date
"""

# Transactions that write to the archive, or wait to, and when each began where that is
# shown: prepared ones have no process, and a role may not look into those of others.
WRITERS = """
SELECT l.virtualtransaction, min(a.xact_start), min(l.pid) FROM pg_locks l
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock'
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND l.pid IS DISTINCT FROM pg_backend_pid()
   AND (l.relation = 'pgqueue_archived_job'::regclass
        OR l.relation IN (SELECT inhrelid FROM pg_inherits
                           WHERE inhparent = 'pgqueue_archived_job'::regclass))
 GROUP BY l.virtualtransaction
"""

# What identifies a row, and never changes: not the result, which is dropped before its
# row. PostgreSQL's own hash of it, a fifth of the time that a SHA-256 takes.
IDENTITY = "id, queue, task, state, attempt, deliveries, enqueued_at, finished_at"
ROW_SUM = f"hash_record_extended(ROW({IDENTITY}), 0)"

# How the checksum of a day begins that is a sum of ROW_SUM.
PREFIX = "r1:"

# Locks: ACCESS SHARE on one day, while it is read; here and below.
CONTENT = f"""
SELECT count(*), '{PREFIX}' || coalesce(sum({ROW_SUM}), 0)::text FROM {{table}}
"""
# Locks: none; a table of the session, which goes away with the transaction.
MAKE_GIVEN = f"""
CREATE TEMPORARY TABLE pgqueue_given_day ON COMMIT DROP AS
SELECT {IDENTITY} FROM pgqueue_archived_job WITH NO DATA
"""
COPY_GIVEN = f"COPY pg_temp.pgqueue_given_day ({IDENTITY}) FROM STDIN (FORMAT csv)"
COUNT = "SELECT count(*) FROM {table}"

KNOWN = """
SELECT day, state, rows, checksum, error
  FROM pgqueue_export WHERE target = %(target)s ORDER BY day
"""

# Exported days whose files no run of the export has looked at lately: retention waits.
UNCHECKED = """
SELECT day FROM pgqueue_export
 WHERE target = %(target)s AND state = 'exported' AND rows > 0
   AND NOT coalesce(checked_at > clock_timestamp() - %(fresh)s::interval, false)
"""

TARGETS = "SELECT DISTINCT target FROM pgqueue_export ORDER BY target"
LATEST_TARGET = """
SELECT target FROM pgqueue_export WHERE state = 'exported'
 ORDER BY exported_at DESC LIMIT 1
"""

# Locks: a row lock on the day, until the caller's transaction ends; here and below.
# What was exported before stays known until it is replaced.
BEGIN = """
INSERT INTO pgqueue_export AS e (target, day, state, run_id, started_at)
VALUES (%(target)s, %(day)s, 'writing', %(run)s, clock_timestamp())
ON CONFLICT (target, day) DO UPDATE
   SET state = 'writing', run_id = EXCLUDED.run_id, started_at = EXCLUDED.started_at,
       error = NULL
"""
RECORD = """
UPDATE pgqueue_export
   SET state = 'exported', rows = %(rows)s, checksum = %(checksum)s,
       version = %(version)s, exported_at = clock_timestamp(),
       checked_at = clock_timestamp(), error = NULL
 WHERE target = %(target)s AND day = %(day)s AND run_id = %(run)s
   AND state = 'writing'
"""
# Of a day from which rows were erased.
RECOUNT = """
UPDATE pgqueue_export SET rows = %(rows)s, checksum = %(checksum)s
 WHERE target = %(target)s AND day = %(day)s AND state = 'exported'
"""
# Of days whose files a run has looked at.
SEEN = """
UPDATE pgqueue_export SET checked_at = clock_timestamp()
 WHERE target = %(target)s AND day = ANY(%(days)s::date[]) AND state = 'exported'
"""
# What is wrong with a day: with what is there, or with what a run has tried to write.
MARK = """
UPDATE pgqueue_export
   SET error = %(error)s, state = CASE WHEN %(is_stale)s THEN 'stale' ELSE state END
 WHERE target = %(target)s AND day = %(day)s
   AND CASE WHEN %(run)s::bigint IS NULL THEN state = 'exported' ELSE run_id = %(run)s
       END
"""

# Days that the archive has no table for any more, each from the place where it was
# exported to last.
DEPARTED = """
SELECT DISTINCT ON (day) day, target, rows
  FROM pgqueue_export
 WHERE state <> 'stale' AND rows IS NOT NULL AND day >= %(first)s
   AND day NOT IN (SELECT to_date(right(c.relname, 8), 'YYYYMMDD')
                     FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                    WHERE i.inhparent = 'pgqueue_archived_job'::regclass
                      AND c.relname ~ '^pgqueue_archived_job_[0-9]{8}$')
 ORDER BY day, exported_at DESC
"""


# A look at the files that is younger lets retention drop a day: the export runs once a
# day, and one run may be missing.
FRESH = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Content:
    """How many rows, and a checksum over what identifies them."""

    rows: int
    checksum: str

    def __str__(self) -> str:
        return f"{self.rows:,} rows with the checksum {self.checksum}"


@dataclass(frozen=True, slots=True)
class Writer:
    """A transaction: when it began, and its process; None: not shown, or prepared."""

    began_at: datetime | None
    pid: int | None

    def is_over(self, day: date) -> bool:
        """Whether it began when *day* had ended, and so has no row of it."""
        return self.began_at is not None and self.began_at >= end_of(day)


@dataclass(frozen=True, slots=True)
class ExportedDay:
    """What is known of the export of a day; rows is None if it was never exported."""

    day: date
    state: str
    rows: int | None
    checksum: str | None
    error: str | None

    @property
    def is_exported(self) -> bool:
        """Whether it is where it belongs, as far as is known."""
        return self.state == "exported"

    def has(self, content: Content) -> bool:
        """Whether it is exported, with just these rows."""
        return self.is_exported and content == Content(
            self.rows or 0, self.checksum or ""
        )


@dataclass(frozen=True, slots=True)
class Departed:
    """A day that the lake alone has."""

    day: date
    target: str
    rows: int


def end_of(day: date) -> datetime:
    """Return when *day* was over: days are days in UTC."""
    return datetime.combine(day + DAY, time(), UTC)


def ended_days(cursor: Cursor) -> dict[date, str]:
    """Return the days of the archive that are over, and the table of each."""
    unended = value(cursor, UNENDED, margin=MARGIN)
    attached = ARCHIVE.attached(cursor)
    return {day: ARCHIVE.name_of(day) for day in attached if day < unended}


def writers(cursor: Cursor) -> dict[str, Writer]:
    """Return the transactions that write to the archive now, or wait to, by name."""
    cursor.execute(WRITERS)
    return {name: Writer(began_at, pid) for name, began_at, pid in cursor.fetchall()}


def content(cursor: Cursor, table: str) -> Content:
    """
    Count the rows of a day, and add up what identifies them. It reads all of them.

    Its *table* is as ended_days() returns it.
    """
    cursor.execute(sql.SQL(CONTENT).format(table=sql.Identifier(table)))
    return Content(*one_row(cursor))


def content_of(cursor: Any, rows: Iterable[bytes]) -> Content:
    """Return what content() says of rows that are elsewhere: IDENTITY, as CSV."""
    with cursor.connection.transaction():
        cursor.execute(MAKE_GIVEN)
        with cursor.copy(COPY_GIVEN) as copy:
            for text in rows:
                copy.write(text)
        return content(cursor, "pgqueue_given_day")


def checksum_of(total: int) -> str:
    """Return a sum of ROW_SUM as rows of days have it."""
    return f"{PREFIX}{total}"


def count(cursor: Cursor, table: str) -> int:
    """Count the rows of a day."""
    return int(value(cursor, sql.SQL(COUNT).format(table=sql.Identifier(table))))


def known(cursor: Cursor, target: str) -> dict[date, ExportedDay]:
    """Return what is known of each day at *target*."""
    cursor.execute(KNOWN, {"target": target})
    return {row[0]: ExportedDay(*row) for row in cursor.fetchall()}


def targets(cursor: Cursor) -> list[str]:
    """Return each place that days were exported to."""
    return column(cursor, TARGETS)


def latest_target(cursor: Cursor) -> str | None:
    """Return where a day was exported to last, or None."""
    target: str | None = first(cursor, LATEST_TARGET)
    return target


def begin(cursor: Cursor, target: str, day: date, *, run: int) -> None:
    """Note that *run* writes *day*; what is there stays as it is."""
    cursor.execute(BEGIN, {"target": target, "day": day, "run": run})


def record(
    cursor: Cursor,
    target: str,
    day: date,
    *,
    run: int,
    found: Content,
    version: int | None = None,
) -> None:
    """Note what *run* has written of a day, and in which version of the table."""
    values = {"target": target, "day": day, "run": run, "version": version}
    cursor.execute(RECORD, {**values, "rows": found.rows, "checksum": found.checksum})


def recount(cursor: Cursor, target: str, day: date, found: Content) -> None:
    """Note what an exported day has, since rows of it were erased."""
    values = {"target": target, "day": day}
    cursor.execute(RECOUNT, {**values, "rows": found.rows, "checksum": found.checksum})


def unchecked(cursor: Cursor, target: str) -> set[date]:
    """Return the exported days whose files no run has looked at lately."""
    return set(column(cursor, UNCHECKED, target=target, fresh=FRESH))


def seen(cursor: Cursor, target: str, days: Sequence[date]) -> None:
    """Note that the files of these exported days are there."""
    cursor.execute(SEEN, {"target": target, "days": [*days]})


def mark(
    cursor: Cursor,
    target: str,
    day: date,
    *,
    error: str | None,
    run: int | None = None,
    is_stale: bool = False,
) -> None:
    """
    Note what is wrong with an exported day.

    Args:
        error: What; None: nothing.
        run: This run could not export it; None: what is there is wrong.
        is_stale: The archive has other rows of it, and it is exported again.
    """
    values = {"target": target, "day": day, "run": run, "is_stale": is_stale}
    cursor.execute(MARK, {**values, "error": error})


def departed(cursor: Cursor, *, first: date) -> list[Departed]:
    """Return the exported days from *first* on that are no longer in the archive."""
    return rows(Departed, cursor, DEPARTED, first=first)


# Ingest -----------------------------------------------------------------------------
# The position says up to which message each topic is written by its place; retention
# may wait for it. Which batches are there, the Delta table says itself.

# Locks: none.
INGEST_TARGETS = "SELECT DISTINCT target FROM pgqueue_ingest_position ORDER BY target"

# Locks: a row lock on each position until the caller's transaction ends; one run at a
# time comes here with a topic and a target, since it holds its own row.
NOTE_READ = """
INSERT INTO pgqueue_ingest_position AS p (topic_id, target, read_to, run_id)
SELECT t.id, %(target)s, asked.read_to, %(run)s
  FROM unnest(%(names)s::text[], %(positions)s::bigint[]) AS asked(name, read_to)
  JOIN pgqueue_topic t ON t.name = asked.name
 ORDER BY t.id
ON CONFLICT (topic_id, target) DO UPDATE
   SET read_to = greatest(p.read_to, EXCLUDED.read_to), run_id = EXCLUDED.run_id,
       read_at = clock_timestamp()
"""


def ingest_targets(cursor: Cursor) -> list[str]:
    """Return each place that messages were ingested to."""
    return column(cursor, INGEST_TARGETS)


def note(cursor: Cursor, target: str, read_to: Mapping[str, int], *, run: int) -> None:
    """
    Say up to which id topics are at *target*, all of their messages.

    Args:
        cursor: In a transaction that holds the run.
        target: Where they were written.
        read_to: By the topic's name.
        run: The id of the run.
    """
    params = {
        "target": target,
        "run": run,
        "names": list(read_to),
        "positions": list(read_to.values()),
    }
    cursor.execute(NOTE_READ, params)
