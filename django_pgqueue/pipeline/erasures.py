"""
Erasures: rows of one customer, found by an argument and deleted, with a receipt.

A table is gone through by its primary key, a page at a time, so that no statement takes
long, and no lock is held for longer than a page. Each page's rows and the receipt that
counts them are one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from django_pgqueue.postgres.cursor import Cursor, one_row

# Rows that one statement looks at.
PAGE_ROWS = 5_000

LIVE, LETTERS = "pgqueue_job", "pgqueue_dead_letter"

# Locks: none. The days of the archive, those that have not ended as well.
ARCHIVE_TABLES = """
SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'pgqueue_archived_job'::regclass
   AND NOT coalesce(i.inhdetachpending, false)
 ORDER BY 1
"""

PAGE = """
WITH page AS MATERIALIZED (
    SELECT id, {column} #> %(path)s::text[] = %(value)s::jsonb
               AND (%(task)s::text = '' OR task = %(task)s::text) AS is_theirs
      FROM {table} WHERE id > %(after)s ORDER BY id LIMIT %(limit)s)"""

# Locks: ACCESS SHARE on the table.
COUNT_PAGE = f"""{PAGE}
SELECT max(id), count(*) FILTER (WHERE is_theirs) FROM page
"""
# Locks: row locks on the deleted rows. An array of ids, so that they are found by the
# primary key.
DELETE_PAGE = f"""{PAGE},
gone AS (
    DELETE FROM {{table}}
     WHERE id = ANY(ARRAY(SELECT id FROM page WHERE is_theirs)) RETURNING id)
SELECT (SELECT max(id) FROM page), (SELECT count(*) FROM gone)
"""

BEGIN = """
INSERT INTO pgqueue_erasure (run_id, asked_by, path, task, value_hash)
SELECT %(run)s, (SELECT asked_by FROM pgqueue_pipeline_run WHERE id = %(run)s),
       %(path)s, %(task)s, %(value_hash)s
RETURNING id
"""
# Locks: a row lock on the receipt; here and below.
ADD_ROWS = """
UPDATE pgqueue_erasure
   SET archive_rows = archive_rows + %(archive)s,
       dead_letter_rows = dead_letter_rows + %(letters)s
 WHERE id = %(erasure)s
"""
ADD_EXPORT = """
UPDATE pgqueue_erasure SET exports = exports || %(day)s::jsonb WHERE id = %(erasure)s
"""
FINISH = """
UPDATE pgqueue_erasure SET finished_at = clock_timestamp() WHERE id = %(erasure)s
"""

TARGETS = "SELECT DISTINCT target FROM pgqueue_export ORDER BY target"


@dataclass(frozen=True, slots=True)
class Sought:
    """Whose rows: those with this JSON value at a path in args or kwargs."""

    # "args" or "kwargs".
    column: str
    # Keys and indices below it.
    path: Sequence[str]
    value: Any
    # "": of any task.
    task: str

    def values(self) -> dict[str, Any]:
        """Return the parameters of a page's statement."""
        return {
            "path": list(self.path),
            "value": json.dumps(self.value),
            "task": self.task,
        }


def archive_tables(cursor: Cursor) -> list[str]:
    """Return the tables of the archive's days."""
    cursor.execute(ARCHIVE_TABLES)
    return [str(row[0]) for row in cursor.fetchall()]


def count_page(
    cursor: Cursor, table: str, sought: Sought, *, after: int
) -> tuple[int | None, int]:
    """Return the last id of the page after *after*, and how many rows are sought."""
    return _page(cursor, COUNT_PAGE, table, sought, after)


def delete_page(
    cursor: Cursor, table: str, sought: Sought, *, after: int
) -> tuple[int | None, int]:
    """Delete what is sought of the page after *after*; return as count_page()."""
    return _page(cursor, DELETE_PAGE, table, sought, after)


def begin(cursor: Cursor, *, run: int, path: str, task: str, value_hash: str) -> int:
    """Write a receipt that says what *run* is going to erase; return its id."""
    values = {"run": run, "path": path, "task": task, "value_hash": value_hash}
    cursor.execute(BEGIN, values)
    return int(one_row(cursor)[0])


def add_rows(
    cursor: Cursor, erasure: int, *, archive: int = 0, letters: int = 0
) -> None:
    """Count rows of a receipt that are gone."""
    values = {"erasure": erasure, "archive": archive, "letters": letters}
    cursor.execute(ADD_ROWS, values)


def add_export(cursor: Cursor, erasure: int, day: Mapping[str, Any]) -> None:
    """Note in a receipt what has gone from the files of a day."""
    cursor.execute(ADD_EXPORT, {"erasure": erasure, "day": json.dumps([dict(day)])})


def finish(cursor: Cursor, erasure: int) -> None:
    """Note that nothing of it is left to do."""
    cursor.execute(FINISH, {"erasure": erasure})


def targets(cursor: Cursor) -> list[str]:
    """Return each place that days were exported to."""
    cursor.execute(TARGETS)
    return [str(row[0]) for row in cursor.fetchall()]


def _page(
    cursor: Cursor, statement: str, table: str, sought: Sought, after: int
) -> tuple[int | None, int]:
    cursor.execute(
        sql.SQL(statement).format(
            table=sql.Identifier(table), column=sql.Identifier(sought.column)
        ),
        {**sought.values(), "after": after, "limit": PAGE_ROWS},
    )
    last, found = one_row(cursor)
    return last, int(found)
