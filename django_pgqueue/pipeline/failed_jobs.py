"""
Failed jobs: those that have errors, wherever their row is, by when they ended.

Only what is asked of a failure leaves the database, and of jobs without errors nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_pgqueue.pipeline.ended_jobs import STATEMENT_SECONDS_MAX
from django_pgqueue.postgres.limits import Plans, along_index, limit

DAY = timedelta(days=1)

# Rows of the queue that one statement looks at, and rows with errors on their way.
LOOKED_AT_ROWS_MAX = 20_000
FETCHED_ROWS = 1_000

# Locks: none; here and below. A part of the primary key. Its last row comes in any
# case: it says where the next part begins.
WAITING = """
WITH looked_at AS MATERIALIZED (
    SELECT id, task, errors, enqueued_at FROM pgqueue_job
     WHERE id > %(after)s ORDER BY id LIMIT %(rows)s)
SELECT id, task, errors::text, NULL, enqueued_at FROM looked_at
 WHERE errors <> '[]' OR id = (SELECT max(id) FROM looked_at)
 ORDER BY id
"""

# A day of the archive, which no index divides by errors: an index would cost each
# settle, and this is read once an hour or less.
ARCHIVED = """
SELECT id, task, errors::text, NULL, finished_at FROM pgqueue_archived_job
 WHERE finished_at >= %(since)s AND finished_at < %(until)s AND errors <> '[]'
"""

# A range of the index of finished_at. Also those without an error: they have a reason.
LETTERS = """
SELECT id, task, errors::text, reason, finished_at FROM pgqueue_dead_letter
 WHERE finished_at >= %(since)s AND finished_at < %(until)s
"""


class Failed(NamedTuple):
    """A job that has errors, or a dead letter, which has a reason."""

    id: int
    task: str
    errors: str  # JSON.
    reason: str | None
    at: datetime  # When it ended; of a job that waits, when it was enqueued.


def waiting(connection: Any) -> Iterator[Failed]:
    """Yield the jobs of the queue that have errors, and a few that have none."""
    after = 0
    while True:
        with connection.transaction(), connection.cursor() as cursor:
            limit(cursor, seconds=STATEMENT_SECONDS_MAX, plans=Plans.IN_ORDER)
            with along_index(cursor):
                cursor.execute(WAITING, {"after": after, "rows": LOOKED_AT_ROWS_MAX})
                rows = cursor.fetchall()
        if not rows:
            return
        yield from map(Failed._make, rows)
        after = rows[-1][0]


def archived(connection: Any, since: datetime, until: datetime) -> Iterator[Failed]:
    """
    Yield jobs of the archive with errors, of those that ended in between.

    Args:
        connection: Of psycopg, in autocommit.
        since: A whole hour, in UTC.
        until: The same.
    """
    while since < until:
        end = min(until, since.replace(hour=0, minute=0) + DAY)
        yield from _fetched(connection, ARCHIVED, since, end)
        since = end


def letters(connection: Any, since: datetime, until: datetime) -> Iterator[Failed]:
    """Yield the dead letters that gave up in between."""
    return _fetched(connection, LETTERS, since, until)


def _fetched(
    connection: Any, statement: str, since: datetime, until: datetime
) -> Iterator[Failed]:
    with connection.transaction(), connection.cursor() as plain:
        limit(plain, seconds=STATEMENT_SECONDS_MAX)
        with connection.cursor("failed_jobs") as cursor:
            cursor.itersize = FETCHED_ROWS
            cursor.execute(statement, {"since": since, "until": until})
            yield from map(Failed._make, cursor)
