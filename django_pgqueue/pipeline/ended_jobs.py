"""
Ended jobs: those of the archive and dead letters by the hour in which they ended.

Read a day at a time, in one snapshot: which hours it has, and where their rows stand;
then each hour that is asked for, from its first row to its last. For a day's rows stand
nearly in the order in which they ended, and no index has it.

A day that has left the archive is put into a table of the session, and read there by
the same statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_pgqueue.pipeline.task_hours import COLUMNS, COUNTS, KEY
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.limits import Plans, along_index, limit

HOUR = timedelta(hours=1)

# What one statement may take: it reads an hour of the archive, or the times of a day.
STATEMENT_SECONDS_MAX = 600

# Durations keep so many digits: an error of half a percent at most.
DIGITS = 3

ARCHIVE = "pgqueue_archived_job"
DEPARTED = "pgqueue_departed_job"

# What is read of a job, here and in the files of a day that has left the archive.
READ_COLUMNS = (
    *("queue", "task", "state", "headers", "run_after", "enqueued_at", "attempt"),
    *("crashes", "deliveries", "errors", "started_at", "finished_at"),
)
OF_BOTH = ", ".join(name for name in READ_COLUMNS if name != "state")

# Locks: ACCESS SHARE on the archive and a day of it; here and below. How many rows each
# hour of a day has: the primary key alone can tell, as it ends with finished_at.
COUNT_ROWS = """
SELECT date_bin('1 hour', finished_at, 'epoch') AS hour, count(*) FROM {table}
 WHERE finished_at >= %(since)s AND finished_at < %(until)s GROUP BY 1
"""
COUNT_ARCHIVED = COUNT_ROWS.format(table=ARCHIVE)
COUNT_DEPARTED = COUNT_ROWS.format(table=DEPARTED)

# Locks: ACCESS SHARE. One walk along the index of finished_at.
COUNT_LETTERS = COUNT_ROWS.format(table="pgqueue_dead_letter")

# Locks: as COUNT_ROWS. From where to where the rows of each hour stand.
FIND_PLACES = """
SELECT date_bin('1 hour', finished_at, 'epoch') AS hour,
       min(ctid)::text, max(ctid)::text FROM {table}
 WHERE finished_at >= %(since)s AND finished_at < %(until)s GROUP BY 1
"""
PLACES_ARCHIVED = FIND_PLACES.format(table=ARCHIVE)
PLACES_DEPARTED = FIND_PLACES.format(table=DEPARTED)

# Microseconds from one time to another, 0 at least; NULL where one is.
BETWEEN = """
CASE WHEN {end} >= {start} THEN round(date_part('epoch', {end} - {start}) * 1e6)
     WHEN {end} < {start} THEN 0 END
"""
RAN = BETWEEN.format(start="started_at", end="finished_at")
WAITED = BETWEEN.format(start="greatest(enqueued_at, run_after)", end="started_at")
# Seconds of microseconds, with DIGITS digits.
ROUNDED = f"""
CASE WHEN {{0}} > 0
     THEN round({{0}} / power(10::float8, greatest(floor(log({{0}})) + {1 - DIGITS}, 0))
          ) * power(10::float8, greatest(floor(log({{0}})) + {1 - DIGITS}, 0)) / 1e6
     WHEN {{0}} = 0 THEN 0 END
"""
# Failures since the latest redrive: those before it were counted with the dead letter.
# What SQL has put there otherwise counts for nothing.
FAILED = '$[*] ? (@.kind == "error" && @.delivery > $before{0})'
EARLIER = FAILED.format(" && @.delivery < $deliveries") + (
    '.ran_seconds ? (@.type() == "number" && @ >= 0 && @ < 1000000000)'
)

# Locks: ACCESS SHARE on a day of the archive and on dead letters. No more is read than
# what stands between the first row of the hour and its lasts dead letters, by
# their index.
# Only the last start of a job is known, so a second delivery hides the first one's
# wait; its own failure is a part of how long it ran.
MEASURE_HOUR = f"""
WITH ended AS (
    SELECT {OF_BOTH}, state::text AS state FROM {{table}}
     WHERE finished_at >= %(hour)s::timestamptz
       AND finished_at < %(hour)s::timestamptz + interval '1 hour'
       AND ctid >= %(first)s::tid AND ctid <= %(last)s::tid
     UNION ALL
    SELECT {OF_BOTH}, 'dead' FROM pgqueue_dead_letter
     WHERE finished_at >= %(hour)s::timestamptz
       AND finished_at < %(hour)s::timestamptz + interval '1 hour'),
told AS (
    SELECT queue, task, state, attempt, crashes, deliveries, errors,
           {RAN} AS ran, CASE WHEN deliveries = 1 THEN {WAITED} END AS waited,
           CASE jsonb_typeof(headers -> 'pgqueue.deliveries_before') WHEN 'number'
                THEN least(greatest((headers ->> 'pgqueue.deliveries_before')::numeric,
                                    0), 2147483647)::bigint
                ELSE 0 END AS before
      FROM ended OFFSET 0),
measured AS (
    SELECT queue, task, state, deliveries - before AS started, crashes,
           CASE WHEN errors = '[]' THEN 0 ELSE jsonb_array_length(
               jsonb_path_query_array(errors, '{FAILED.format("")}',
                                      jsonb_build_object('before', before)))
           END AS failed,
           greatest(attempt - 1, 0) AS retried,
           {ROUNDED.format("waited")} AS wait, {ROUNDED.format("ran")} AS run,
           coalesce(ran, 0) / 1e6 + CASE WHEN errors = '[]' THEN 0 ELSE coalesce((
               SELECT sum(seconds::float8) FROM jsonb_path_query(errors, '{EARLIER}',
                   jsonb_build_object('before', before, 'deliveries', deliveries))
                   AS earlier(seconds)), 0) END AS seconds
      FROM told OFFSET 0),
hours AS (
    SELECT queue, task, sum(started)::bigint AS started,
           count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
           sum(failed)::bigint AS failed, sum(retried)::bigint AS retried,
           count(*) FILTER (WHERE state = 'dead') AS dead,
           count(*) FILTER (WHERE state = 'cancelled') AS cancelled,
           count(*) FILTER (WHERE state = 'expired') AS expired,
           sum(crashes)::bigint AS crashed,
           percentile_cont(ARRAY[0.5, 0.95, 0.99])
               WITHIN GROUP (ORDER BY wait) AS waits,
           max(wait) AS oldest_wait,
           percentile_cont(ARRAY[0.5, 0.95, 0.99])
               WITHIN GROUP (ORDER BY run) AS runs,
           sum(seconds) AS worker_seconds
      FROM measured GROUP BY queue, task)
SELECT %(hour)s::timestamptz AS {", ".join((*KEY, *COUNTS))},
       waits[1], waits[2], waits[3], oldest_wait, runs[1], runs[2], runs[3],
       worker_seconds
  FROM hours
"""
MEASURE_ARCHIVED = MEASURE_HOUR.format(table=ARCHIVE)
MEASURE_DEPARTED = MEASURE_HOUR.format(table=DEPARTED)

# Locks: none; tables of the session, which go away with the transaction. Rows come as
# files have them, queue by queue, and then are put in the order in which they ended.
MAKE_DEPARTED = f"""
CREATE TEMPORARY TABLE pgqueue_given_job ON COMMIT DROP AS
SELECT {", ".join(READ_COLUMNS)} FROM {ARCHIVE} WITH NO DATA
"""
COPY_DEPARTED = f"""
COPY pg_temp.pgqueue_given_job ({", ".join(READ_COLUMNS)}) FROM STDIN (FORMAT csv)
"""
SORT_DEPARTED = f"""
CREATE TEMPORARY TABLE {DEPARTED} ON COMMIT DROP AS
SELECT * FROM pg_temp.pgqueue_given_job ORDER BY finished_at
"""

# Locks: none. Sent before the first look at the rows of a day.
ONE_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"

# No row stands here: those of an hour that has none.
NOWHERE = ("(0,0)", "(0,0)")


@dataclass(frozen=True, slots=True)
class Day:
    """
    A day, looked at in one snapshot.

    Attributes:
        counts: How many rows each of its hours has, without dead letters.
    """

    counts: dict[datetime, int]
    _cursor: Cursor
    _first: datetime
    _is_departed: bool

    def measured(self, hours: Iterable[datetime]) -> list[tuple[Any, ...]]:
        """Return rows of task_hours.COLUMNS, by hour, queue and task."""
        wanted = list(hours)
        if not wanted:
            return []
        self._cursor.execute(
            PLACES_DEPARTED if self._is_departed else PLACES_ARCHIVED,
            {"since": self._first, "until": self._first + 24 * HOUR},
        )
        places = {hour: place for hour, *place in self._cursor.fetchall()}
        statement = MEASURE_DEPARTED if self._is_departed else MEASURE_ARCHIVED
        rows: list[tuple[Any, ...]] = []
        for hour in wanted:
            first, last = places.get(hour, NOWHERE)
            self._cursor.execute(
                statement, {"hour": hour, "first": first, "last": last}
            )
            rows += self._cursor.fetchall()
        assert all(len(row) == len(COLUMNS) for row in rows)
        return rows


def letters(cursor: Cursor, since: datetime, until: datetime) -> dict[datetime, int]:
    """Return how many dead letters each hour has, from *since* on."""
    cursor.execute(COUNT_LETTERS, {"since": since, "until": until})
    return dict(cursor.fetchall())


@contextmanager
def archived(cursor: Any, first: datetime, since: datetime) -> Iterator[Day]:
    """
    Look at a day of the archive, in a transaction that ends with the block.

    Args:
        cursor: Of psycopg, in autocommit.
        first: When the day began, in UTC.
        since: Rows that ended before are left out.
    """
    with in_one_snapshot(cursor):
        yield _day(cursor, first, since, is_departed=False)


@contextmanager
def departed(
    cursor: Any, first: datetime, since: datetime, rows: Iterable[bytes]
) -> Iterator[Day]:
    """
    Look at a day that has left the archive.

    Args:
        cursor: As that of archived(); of a server that can be written to.
        first: When the day began, in UTC.
        since: Rows that ended before are left out.
        rows: The values of READ_COLUMNS, as CSV.
    """
    with in_one_snapshot(cursor):
        cursor.execute(MAKE_DEPARTED)
        with cursor.copy(COPY_DEPARTED) as copy:
            for text in rows:
                copy.write(text)
        cursor.execute(SORT_DEPARTED)
        yield _day(cursor, first, since, is_departed=True)


@contextmanager
def in_one_snapshot(cursor: Any) -> Iterator[None]:
    """Open a transaction on *cursor*, in autocommit, with one snapshot for it all."""
    with cursor.connection.transaction():
        cursor.execute(ONE_SNAPSHOT)
        limit(cursor, seconds=STATEMENT_SECONDS_MAX)
        yield


def _day(cursor: Cursor, first: datetime, since: datetime, *, is_departed: bool) -> Day:
    cursor.execute(
        COUNT_DEPARTED if is_departed else COUNT_ARCHIVED,
        {"since": max(first, since), "until": first + 24 * HOUR},
    )
    return Day(dict(cursor.fetchall()), cursor, first, is_departed)


# Failed jobs ------------------------------------------------------------------------
# Only what is asked of a failure leaves the database, and of jobs without errors
# nothing.

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


def failed_waiting(connection: Any) -> Iterator[Failed]:
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


def failed_archived(
    connection: Any, since: datetime, until: datetime
) -> Iterator[Failed]:
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


def failed_letters(
    connection: Any, since: datetime, until: datetime
) -> Iterator[Failed]:
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
