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

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from psycopg import sql

from django_pgqueue.postgres.cursor import Cursor, has_row, one_row


def local_folder(target: str) -> Path | None:
    """Return the folder that *target* is on this host; None: it is not here."""
    if target.startswith("/"):
        folder = Path(target)
    elif target.lower().startswith("file:"):
        folder = Path(unquote(urlsplit(target).path))
    else:
        return None
    return folder if folder.is_dir() else None


def missing(folder: Path, files: Files) -> str | None:
    """Return the first of *files* that is not in *folder* with its bytes, or None."""
    for file in files:
        path = folder / str(file["path"])
        try:
            is_there = path.stat().st_size == file["bytes"]
        except OSError:
            is_there = False
        if not is_there:
            return str(file["path"])
    return None


DAY = timedelta(days=1)

# A day has ended when it is over for so long: a clock that is set back a little, or a
# statement that was stopped before it took its first lock, is still waited for.
MARGIN = timedelta(seconds=60)

# Locks: none; here and below, where nothing else is said. Days of the archive that
# have ended, with the table of each; a partition of another name has no day.
ENDED = r"""
SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day, c.relname::text
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'pgqueue_archived_job'::regclass
   AND c.relname ~ '^pgqueue_archived_job_[0-9]{8}$'
   AND NOT coalesce(i.inhdetachpending, false)
   AND to_date(right(c.relname, 8), 'YYYYMMDD') < (
           (statement_timestamp() - %(margin)s::interval)
           AT TIME ZONE 'UTC')::date
 ORDER BY day
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

# How the checksum of a manifest begins that is a sum of ROW_SUM.
PREFIX = "r1:"

# Locks: ACCESS SHARE on one day, while it is read; here and below.
CONTENT = f"""
SELECT count(*), '{PREFIX}' || coalesce(sum({ROW_SUM}), 0)::text FROM {{table}}
"""
# As releases before have summed up: 60 bits of a SHA-256 of each row.
CONTENT_BEFORE = r"""
SELECT count(*), coalesce(sum(('x' || substr(encode(sha256(convert_to(concat_ws('|',
           id, queue, task, state, attempt, deliveries,
           (extract(epoch FROM enqueued_at) * 1000000)::bigint,
           (extract(epoch FROM finished_at) * 1000000)::bigint), 'UTF8')), 'hex'),
           1, 15))::bit(60)::bigint), 0)::text
  FROM {table}
"""
# Locks: none. ROW_SUM of rows that are in files alone.
CONTENT_OF_ROWS = f"""
SELECT '{PREFIX}' || coalesce(sum({ROW_SUM}), 0)::text
  FROM unnest(%(id)s::bigint[], %(queue)s::text[], %(task)s::text[], %(state)s::text[],
              %(attempt)s::smallint[], %(deliveries)s::integer[],
              %(enqueued_at)s::timestamptz[], %(finished_at)s::timestamptz[])
       AS r ({IDENTITY})
"""
COUNT = "SELECT count(*) FROM {table}"

KNOWN = """
SELECT day, format, state, rows, checksum, error, run_id
  FROM pgqueue_export WHERE target = %(target)s ORDER BY day
"""

# Whether a run of the export has looked at the files lately; what those are, and what
# they have replaced.
FILES = """
SELECT files, coalesce(checked_at > clock_timestamp() - %(fresh)s::interval, false)
  FROM pgqueue_export WHERE target = %(target)s AND day = %(day)s
"""
# Days that retention waits for, if it cannot look at the files itself.
UNCHECKED = """
SELECT day FROM pgqueue_export
 WHERE target = %(target)s AND state = 'exported' AND rows > 0
   AND NOT coalesce(checked_at > clock_timestamp() - %(fresh)s::interval, false)
"""
REPLACED = """
SELECT day, replaced FROM pgqueue_export
 WHERE target = %(target)s AND replaced <> '[]' ORDER BY day
"""
# Locks: a row lock on the manifest, shared: a transaction that is writing it, and whose
# end nobody has heard of, is waited for.
LISTED = """
SELECT files FROM pgqueue_export
 WHERE target = %(target)s AND day = %(day)s FOR SHARE
"""
DETAILS = """
SELECT files, content, rows, checksum FROM pgqueue_export
 WHERE target = %(target)s AND day = %(day)s
"""

LATEST_TARGET = """
SELECT target FROM pgqueue_export WHERE state = 'exported'
 ORDER BY exported_at DESC LIMIT 1
"""

# Who writes a day has it to itself until he ends, or does not move his lease on.
IS_FREE = """(e.run_id = %(run)s OR NOT EXISTS (
           SELECT FROM pgqueue_pipeline_run r
            WHERE r.id = e.run_id AND r.state = 'running'
              AND r.lease_until >= clock_timestamp()))"""
# Locks: a row lock on the day's manifest, until the caller's transaction ends.
# What was exported before stays known until it is replaced.
BEGIN = f"""
INSERT INTO pgqueue_export AS e (target, day, format, state, run_id, started_at)
VALUES (%(target)s, %(day)s, %(format)s, 'writing', %(run)s, clock_timestamp())
ON CONFLICT (target, day) DO UPDATE
   SET state = CASE WHEN e.state = 'publishing' THEN e.state ELSE 'writing' END,
       run_id = EXCLUDED.run_id, started_at = EXCLUDED.started_at, error = NULL
 WHERE {IS_FREE}
RETURNING id
"""
# Locks: as BEGIN; here and below. Of a day whose files are rewritten, or looked after.
TAKE = f"""
UPDATE pgqueue_export AS e SET run_id = %(run)s, started_at = clock_timestamp()
 WHERE e.target = %(target)s AND e.day = %(day)s AND {IS_FREE}
RETURNING id
"""
# Of a day that only its files have, and whose rewriting has broken off: they stand.
RESTORE = """
UPDATE pgqueue_export SET state = 'exported'
 WHERE target = %(target)s AND day = %(day)s AND run_id = %(run)s
   AND state = 'publishing' AND rows IS NOT NULL
"""
PUBLISH = """
UPDATE pgqueue_export SET state = 'publishing'
 WHERE target = %(target)s AND day = %(day)s AND run_id = %(run)s
RETURNING id
"""
RECORD = """
UPDATE pgqueue_export
   SET state = 'exported', rows = %(rows)s, checksum = %(checksum)s,
       content = %(content)s, files = %(files)s::jsonb, version = %(version)s,
       replaced = %(replaced)s::jsonb, exported_at = clock_timestamp(),
       checked_at = clock_timestamp(), error = NULL
 WHERE target = %(target)s AND day = %(day)s AND run_id = %(run)s
   AND state = 'publishing'
RETURNING id
"""
# Of a day that the run has looked at, and not written.
SEEN = """
UPDATE pgqueue_export
   SET files = %(files)s::jsonb, checked_at = clock_timestamp()
 WHERE target = %(target)s AND day = %(day)s AND run_id = %(run)s
   AND state = 'exported'
"""
CLEANED = """
UPDATE pgqueue_export SET replaced = '[]'
 WHERE target = %(target)s AND day = %(day)s AND replaced = %(replaced)s::jsonb
"""
FAIL = """
UPDATE pgqueue_export SET error = %(error)s
 WHERE target = %(target)s AND day = %(day)s AND run_id = %(run)s
"""
# Of a day whose files are not what they were, and which may not be made anew.
DOUBT = """
UPDATE pgqueue_export SET error = %(error)s
 WHERE target = %(target)s AND day = %(day)s AND state = 'exported'
"""
SPOIL = """
UPDATE pgqueue_export SET state = 'stale', error = %(error)s
 WHERE target = %(target)s AND day = %(day)s AND state = 'exported'
"""

# Days that the archive has no table for any more, each from the place where it was
# exported to last.
DEPARTED = """
SELECT DISTINCT ON (day) day, target, format, rows, files
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

# The error of a day whose files are not where the manifest says.
GONE = "Files of it are gone from the place that it was exported to."

# "path", below the target, and "bytes" of each file.
Files = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Content:
    """How many rows, and a checksum over what identifies them."""

    rows: int
    checksum: str

    def __str__(self) -> str:
        return f"{self.rows:,} rows with the checksum {self.checksum}"

    def with_rows(self, more: Content) -> Content:
        """Return what there is when the rows of *more* come; both of this release."""
        total = total_of(self.checksum) + total_of(more.checksum)
        return Content(self.rows + more.rows, checksum_of(total))

    def without(self, gone: Content) -> Content:
        """Return what stays when the rows of *gone* go; both are of this release."""
        left = total_of(self.checksum) - total_of(gone.checksum)
        return Content(self.rows - gone.rows, checksum_of(left))


@dataclass(frozen=True, slots=True)
class Writer:
    """A transaction: when it began, and its process; None: not shown, or prepared."""

    began_at: datetime | None
    pid: int | None

    def is_over(self, day: date) -> bool:
        """Whether it began when *day* had ended, and so has no row of it."""
        return self.began_at is not None and self.began_at >= end_of(day)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is known of the export of a day; rows is None if it was never exported."""

    day: date
    format: str
    state: str
    rows: int | None
    checksum: str | None
    error: str | None
    # The latest run that took it up.
    run: int

    @property
    def is_exported(self) -> bool:
        """Whether it is where it belongs, as far as is known."""
        return self.state == "exported"

    @property
    def was_published(self) -> bool:
        """Whether what is at the target may be of a run of ours."""
        return self.rows is not None or self.state == "publishing"

    def has(self, content: Content) -> bool:
        """Whether it is exported, with just these rows."""
        return self.is_exported and content == Content(
            self.rows or 0, self.checksum or ""
        )


@dataclass(frozen=True, slots=True)
class Details:
    """What a manifest lists: files, a checksum over all columns, rows and checksum."""

    files: Files
    content: str | None
    found: Content


@dataclass(frozen=True, slots=True)
class Departed:
    """A day that is in files alone."""

    day: date
    target: str
    format: str
    rows: int
    files: Files


def end_of(day: date) -> datetime:
    """Return when *day* was over: days are days in UTC."""
    return datetime.combine(day + DAY, time(), UTC)


def ended_days(cursor: Cursor, *, margin: timedelta = MARGIN) -> dict[date, str]:
    """Return the days of the archive that are over, and the table of each."""
    cursor.execute(ENDED, {"margin": margin})
    return dict(cursor.fetchall())


def writers(cursor: Cursor) -> dict[str, Writer]:
    """Return the transactions that write to the archive now, or wait to, by name."""
    cursor.execute(WRITERS)
    return {name: Writer(began_at, pid) for name, began_at, pid in cursor.fetchall()}


def content(cursor: Cursor, table: str, *, like: str | None = None) -> Content:
    """
    Count the rows of a day, and add up what identifies them. It reads all of them.

    Args:
        cursor: An open cursor.
        table: As ended_days() returns it.
        like: The checksum that it is compared with; None: with none.
    """
    is_older = like is not None and not like.startswith(PREFIX)
    statement = CONTENT_BEFORE if is_older else CONTENT
    cursor.execute(sql.SQL(statement).format(table=sql.Identifier(table)))
    return Content(*one_row(cursor))


def checksum_of(total: int) -> str:
    """Return a sum of ROW_SUM as manifests have it."""
    return f"{PREFIX}{total}"


def total_of(checksum: str) -> int:
    """Return the sum of ROW_SUM that a manifest has."""
    return int(checksum.removeprefix(PREFIX))


def count(cursor: Cursor, table: str) -> int:
    """Count the rows of a day."""
    cursor.execute(sql.SQL(COUNT).format(table=sql.Identifier(table)))
    return int(one_row(cursor)[0])


def known(cursor: Cursor, target: str) -> dict[date, Manifest]:
    """Return what is known of each day at *target*."""
    cursor.execute(KNOWN, {"target": target})
    return {row[0]: Manifest(*row) for row in cursor.fetchall()}


def latest_target(cursor: Cursor) -> str | None:
    """Return where a day was exported to last, or None."""
    cursor.execute(LATEST_TARGET)
    row = cursor.fetchone()
    return None if row is None else str(row[0])


def details(cursor: Cursor, target: str, day: date) -> Details | None:
    """Return what the manifest of a day says in full; None: it was never exported."""
    cursor.execute(DETAILS, {"target": target, "day": day})
    row = cursor.fetchone()
    if row is None or row[2] is None:
        return None
    return Details(_read(row[0]), row[1], Content(row[2], row[3]))


def begin(cursor: Cursor, target: str, day: date, *, form: str, run: int) -> bool:
    """
    Note that *run* writes *day*; what is published stays as it is.

    False: another run that is live does.
    """
    values = {"target": target, "day": day, "format": form, "run": run}
    return has_row(cursor, BEGIN, **values)


def take(cursor: Cursor, target: str, day: date, *, run: int) -> bool:
    """Give a day that has a manifest to *run*; False: another that is live has it."""
    return has_row(cursor, TAKE, target=target, day=day, run=run)


def restore(cursor: Cursor, target: str, day: date, *, run: int) -> None:
    """Note that what a day's manifest lists is the day, whatever was begun."""
    cursor.execute(RESTORE, {"target": target, "day": day, "run": run})


def content_of_rows(cursor: Cursor, rows: Mapping[str, Sequence[Any]]) -> Content:
    """Return what content() says of rows, by the values of each column of IDENTITY."""
    cursor.execute(CONTENT_OF_ROWS, dict(rows))
    return Content(len(rows["id"]), str(one_row(cursor)[0]))


def publish(cursor: Cursor, target: str, day: date, *, run: int) -> bool:
    """Note that *run* begins to change what readers see; False: it may not."""
    return has_row(cursor, PUBLISH, target=target, day=day, run=run)


def record(
    cursor: Cursor,
    target: str,
    day: date,
    *,
    run: int,
    found: Content,
    content: str | None,
    files: Files,
    replaced: Sequence[str] = (),
    version: int | None = None,
) -> bool:
    """
    Write the manifest of a day that *run* has published; False: it may not.

    From then on *files* are the day, and *replaced*, paths below the target, may go.
    """
    return has_row(
        cursor,
        RECORD,
        target=target,
        day=day,
        run=run,
        rows=found.rows,
        checksum=found.checksum,
        content=content,
        files=json.dumps(list(files)),
        replaced=json.dumps(list(replaced)),
        version=version,
    )


def files_of(cursor: Cursor, target: str, day: date) -> tuple[Files, bool]:
    """Return the files of a day, and whether a run has looked at them lately."""
    cursor.execute(FILES, {"target": target, "day": day, "fresh": FRESH})
    row = cursor.fetchone()
    return ([], False) if row is None else (_read(row[0]), bool(row[1]))


def unchecked(cursor: Cursor, target: str) -> set[date]:
    """Return the exported days whose files no run has looked at lately."""
    cursor.execute(UNCHECKED, {"target": target, "fresh": FRESH})
    return {row[0] for row in cursor.fetchall()}


def listed(cursor: Cursor, target: str, day: date) -> list[str]:
    """Return the paths of a day by its manifest; transactions on it are waited for."""
    cursor.execute(LISTED, {"target": target, "day": day})
    row = cursor.fetchone()
    return [] if row is None else [str(file["path"]) for file in _read(row[0])]


def seen(cursor: Cursor, target: str, day: date, *, run: int, files: Files) -> None:
    """Note that *files* hold all of *day*, which *run* has exported."""
    values = {"target": target, "day": day, "run": run}
    cursor.execute(SEEN, {**values, "files": json.dumps(list(files))})


def replaced(cursor: Cursor, target: str) -> dict[date, list[str]]:
    """Return the paths of each day that manifests have replaced, and that may go."""
    cursor.execute(REPLACED, {"target": target})
    return {day: [*map(str, _read(paths))] for day, paths in cursor.fetchall()}


def cleaned(cursor: Cursor, target: str, day: date, paths: Sequence[str]) -> None:
    """Note that the replaced *paths* are gone."""
    values = {"target": target, "day": day, "replaced": json.dumps(list(paths))}
    cursor.execute(CLEANED, values)


def fail(cursor: Cursor, target: str, day: date, *, run: int, error: str) -> None:
    """Note why *run* did not export *day*."""
    cursor.execute(FAIL, {"target": target, "day": day, "run": run, "error": error})


def spoil(cursor: Cursor, target: str, day: date, *, error: str) -> None:
    """Note that the archive has other rows of *day* than were exported."""
    cursor.execute(SPOIL, {"target": target, "day": day, "error": error})


def doubt(cursor: Cursor, target: str, day: date, *, error: str | None) -> None:
    """Note what is wrong with the files of an exported day; None: nothing."""
    cursor.execute(DOUBT, {"target": target, "day": day, "error": error})


def departed(cursor: Cursor, *, first: date) -> list[Departed]:
    """Return the exported days from *first* on that are no longer in the archive."""
    cursor.execute(DEPARTED, {"first": first})
    return [
        Departed(day, target, form, rows, _read(files))
        for day, target, form, rows, files in cursor.fetchall()
    ]


def _read(value: Any) -> Any:
    # Django's cursors leave JSON as text.
    return json.loads(value) if isinstance(value, str) else value
