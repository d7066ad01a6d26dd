"""
Erasures: rows of one customer, found by a value in them and deleted, with a receipt.

A table is gone through by its primary key, a page at a time, so that no statement takes
long, and no lock is held for longer than a page. Each page's rows and the receipt that
counts them are one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from psycopg import sql

from django_pgqueue.postgres.cursor import Cursor, column, one_row, value

# Rows that one statement looks at.
PAGE_ROWS = 5_000

# Messages that one statement deletes.
DELETE_ROWS = 1_000

LIVE, LETTERS = "pgqueue_job", "pgqueue_dead_letter"
ARCHIVE, LOG = "pgqueue_archived_job", "pgqueue_message"

# The column of a message, and what a path of it begins with.
PAYLOAD = "payload"

# Locks: none. The days of the archive or of the log, those that have not ended as well.
DAY_TABLES = """
SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = %(parent)s::regclass
   AND NOT coalesce(i.inhdetachpending, false)
 ORDER BY 1
"""

# A job is theirs by its own arguments, or by the message that it is of.
PAGE = """
WITH page AS MATERIALIZED (
    SELECT id, message_id,
           (coalesce(%(value)s::jsonb IN ({column} #> %(path)s::text[],
                                          {column} #> %(other_path)s::text[]), false)
            OR coalesce(message_id = ANY(%(messages)s::bigint[]), false))
               AND (%(task)s::text = '' OR task = %(task)s::text) AS is_theirs
      FROM {table} WHERE id > %(after)s ORDER BY id LIMIT %(limit)s)"""

# Locks: ACCESS SHARE on the table.
COUNT_PAGE = f"""{PAGE}
SELECT max(id), count(*) FILTER (WHERE is_theirs),
       array_agg(message_id) FILTER (
           WHERE message_id = ANY(%(messages)s::bigint[])) FROM page
"""
# Locks: row locks on the deleted rows, and on the hours of `conservation`, of which
# there are fewer now, and none is missing. An array of ids, so that rows are found by
# the primary key.
DELETE_PAGE = f"""{PAGE},
gone AS (
    DELETE FROM {{table}} WHERE id = ANY(ARRAY(SELECT id FROM page WHERE is_theirs))
    RETURNING id, queue, task, date_bin('1 hour', enqueued_at, 'epoch') AS hour),
accounted AS (
    UPDATE pgqueue_enqueued_hour h
       SET enqueued = greatest(h.enqueued - less.rows, 0),
           {{seen}} = greatest(h.{{seen}} - less.rows, 0)
      FROM (SELECT hour, queue, task, count(*) AS rows FROM gone
             GROUP BY hour, queue, task) less
     WHERE (h.hour, h.queue, h.task) = (less.hour, less.queue, less.task))
SELECT (SELECT max(id) FROM page), (SELECT count(*) FROM gone), NULL::bigint[]
"""

# Locks: ACCESS SHARE on a day of the log, groups and positions. Which messages are
# theirs, and which of these a consumer group has still to read.
FIND_MESSAGES = """
WITH page AS MATERIALIZED (
    SELECT m.id, m.payload #> %(path)s::text[] = %(value)s::jsonb AS is_theirs,
           CASE WHEN m.payload #> %(path)s::text[] = %(value)s::jsonb THEN EXISTS (
               SELECT FROM pgqueue_consumer_group g
                 JOIN pgqueue_position p
                   ON p.group_id = g.id AND p.partition = m.partition
                WHERE g.topic_id = m.topic_id AND p.position < m.id
                  AND (g.payload_filter IS NULL OR m.payload @> g.payload_filter))
           END AS is_unread
      FROM {table} m WHERE m.id > %(after)s ORDER BY m.id LIMIT %(limit)s)
SELECT max(id), array_agg(id) FILTER (WHERE is_theirs),
       array_agg(id) FILTER (WHERE is_unread) FROM page
"""
# Locks: row locks on the deleted rows, which nobody else wants but retention. By the
# primary key. What is gone of each topic.
DELETE_MESSAGES = """
WITH gone AS (
    DELETE FROM {table} WHERE id = ANY(%(ids)s::bigint[]) RETURNING id, topic_id)
SELECT t.name, count(*), min(gone.id), max(gone.id)
  FROM gone JOIN pgqueue_topic t ON t.id = gone.topic_id GROUP BY t.name
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
# Of a commit that is not in it yet: whoever comes next notes it again.
ADD_FILES = """
UPDATE pgqueue_erasure
   SET {column} = {column} || jsonb_build_array(
           %(place)s::jsonb || jsonb_build_object('rows', %(rows)s::bigint,
                                                  'files', %(files)s::int))
 WHERE id = %(erasure)s AND NOT {column} @> jsonb_build_array(%(place)s::jsonb)
"""
# Locks: none.
HAS_FILES = """
SELECT {column} @> jsonb_build_array(%(place)s::jsonb)
  FROM pgqueue_erasure WHERE id = %(erasure)s
"""
# Locks: a row lock on the receipt, here and below.
SET_MESSAGES = """
UPDATE pgqueue_erasure SET messages = %(messages)s::jsonb WHERE id = %(erasure)s
"""
FINISH = """
UPDATE pgqueue_erasure SET finished_at = clock_timestamp() WHERE id = %(erasure)s
"""


@dataclass(frozen=True, slots=True)
class Sought:
    """Whose rows: those with this JSON value at a path in a column."""

    # "args" or "kwargs" of jobs, or "payload" of messages.
    column: str
    # Keys and indices below it.
    path: Sequence[str]
    value: Any
    # "": of any task.
    task: str

    @property
    def is_of_messages(self) -> bool:
        """Whether messages are sought, and jobs that are made of them."""
        return self.column == PAYLOAD

    @property
    def in_jobs(self) -> tuple[str, list[list[str]]]:
        """The column of jobs, and the paths at one of which they have the value."""
        if not self.is_of_messages:
            return self.column, [[*self.path]]
        # Retention has given those that it left behind a copy: of a subscription the
        # message, of a group a list of it.
        tops = (["0"], ["0", "0"])
        return "args", [[*top, "value", PAYLOAD, *self.path] for top in tops]

    def values(self) -> dict[str, Any]:
        """Return the parameters of a page's statement."""
        return {
            "path": list(self.path),
            "value": json.dumps(self.value),
            "task": self.task,
        }


@dataclass(frozen=True, slots=True)
class Page:
    """What was found of the rows after an id."""

    # None: there are none.
    last: int | None
    rows: int
    # The messages among the given ones that some of them are of.
    messages: Sequence[int]


def day_tables(cursor: Cursor, parent: str) -> list[str]:
    """Return the tables of the days of the archive, or of the log."""
    return list(map(str, column(cursor, DAY_TABLES, parent=parent)))


def find_messages(
    cursor: Cursor, table: str, sought: Sought, *, after: int
) -> tuple[int | None, list[int], list[int]]:
    """
    Return what is theirs among the messages of a day after *after*.

    Returns:
        The last id that was looked at, None if there is none; ids of theirs; and those
        among them that a consumer group has still to read.
    """
    cursor.execute(
        sql.SQL(FIND_MESSAGES).format(table=sql.Identifier(table)),
        {**sought.values(), "after": after, "limit": PAGE_ROWS},
    )
    last, theirs, unread = one_row(cursor)
    return last, theirs or [], unread or []


def delete_messages(
    cursor: Cursor, table: str, ids: Sequence[int]
) -> dict[str, tuple[int, int, int]]:
    """Delete messages of a day; return how many, the first and the last by topic."""
    cursor.execute(
        sql.SQL(DELETE_MESSAGES).format(table=sql.Identifier(table)),
        {"ids": list(ids)},
    )
    return {name: (rows, first, last) for name, rows, first, last in cursor.fetchall()}


def begin(cursor: Cursor, *, run: int, path: str, task: str, value_hash: str) -> int:
    """Write a receipt that says what *run* is going to erase; return its id."""
    values = {"run": run, "path": path, "task": task, "value_hash": value_hash}
    return int(value(cursor, BEGIN, **values))


def add_rows(
    cursor: Cursor, erasure: int, *, archive: int = 0, letters: int = 0
) -> None:
    """Count rows of a receipt that are gone."""
    values = {"erasure": erasure, "archive": archive, "letters": letters}
    cursor.execute(ADD_ROWS, values)


def add_files(
    cursor: Cursor,
    erasure: int,
    column: str,
    place: Mapping[str, Any],
    *,
    rows: int,
    files: int,
) -> None:
    """
    Note once in a receipt what a commit has deleted from files.

    Args:
        column: "exports", or "ingested" of messages.
        place: The target, the day and the version of the table.
    """
    cursor.execute(
        sql.SQL(ADD_FILES).format(column=sql.Identifier(column)),
        {"erasure": erasure, "place": json.dumps(place), "rows": rows, "files": files},
    )


def has_files(
    cursor: Cursor, erasure: int, column: str, place: Mapping[str, Any]
) -> bool:
    """Return whether a receipt notes a commit; also if there is no such receipt."""
    cursor.execute(
        sql.SQL(HAS_FILES).format(column=sql.Identifier(column)),
        {"erasure": erasure, "place": json.dumps(place)},
    )
    row = cursor.fetchone()
    return row is None or bool(row[0])


def set_messages(
    cursor: Cursor, erasure: int, gone: Mapping[str, tuple[int, int, int]]
) -> None:
    """Note in a receipt what has gone from the log, as delete_messages() tells it."""
    told = {
        topic: {"rows": rows, "first_id": first, "last_id": last}
        for topic, (rows, first, last) in gone.items()
    }
    cursor.execute(SET_MESSAGES, {"erasure": erasure, "messages": json.dumps(told)})


def finish(cursor: Cursor, erasure: int) -> None:
    """Note that nothing of it is left to do."""
    cursor.execute(FINISH, {"erasure": erasure})


def page(
    cursor: Cursor,
    table: str,
    sought: Sought,
    *,
    after: int,
    messages: Sequence[int] = (),
    deletes: bool = False,
) -> Page:
    """
    Return how many jobs of the page after *after* are theirs, or of *messages*.

    They are counted, or deleted.
    """
    column, paths = sought.in_jobs
    values = {"path": paths[0], "other_path": paths[-1], "messages": list(messages)}
    cursor.execute(
        sql.SQL(DELETE_PAGE if deletes else COUNT_PAGE).format(
            table=sql.Identifier(table),
            column=sql.Identifier(column),
            seen=sql.Identifier("dead" if table == LETTERS else "archived"),
        ),
        {**sought.values(), **values, "after": after, "limit": PAGE_ROWS},
    )
    last, rows, found = one_row(cursor)
    return Page(last, int(rows), found or ())


delete_page = partial(page, deletes=True)
