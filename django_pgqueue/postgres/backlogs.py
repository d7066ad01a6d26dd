"""
Backlogs: tables of a million rows for the benchmark, filled within seconds.

Each is one INSERT … SELECT generate_series on the server, in a scratch place.
"""

from __future__ import annotations

import contextlib

import psycopg

from django_pgqueue.postgres import scratch
from django_pgqueue.postgres.cursor import Cursor

QUEUE, QUEUE_ELSEWHERE = "default", "elsewhere"

# With it, the arguments of a row take as many bytes as those of the measured jobs.
ARGUMENTS = "jsonb_build_object('order_id', n, 'note', repeat('x', 72))"

# Due now; where a line holds several batches, in the order in which they came.
READY = f"""
INSERT INTO pgqueue_job (queue, task, kwargs)
SELECT %(queue)s, %(task)s, {ARGUMENTS} FROM generate_series(1, %(rows)s) n
"""

# From tomorrow on, a millisecond apart.
SCHEDULED = f"""
INSERT INTO pgqueue_job (queue, task, kwargs, visible_at)
SELECT %(queue)s, %(task)s, {ARGUMENTS},
       statement_timestamp() + interval '1 day' + n * interval '1 ms'
  FROM generate_series(1, %(rows)s) n
"""

# All in one lane, which parks them.
PARKED = f"""
INSERT INTO pgqueue_job (queue, task, kwargs, lane)
SELECT %(queue)s, %(task)s, {ARGUMENTS}, 'pgqueue_bench'
  FROM generate_series(1, %(rows)s) n
"""

# Of this moment: in the partition that the measured jobs come to.
ARCHIVED = f"""
INSERT INTO pgqueue_archived_job (id, queue, task, kwargs, attempt, deliveries, state,
                                  started_at, finished_at, worker)
SELECT nextval(pg_get_serial_sequence('pgqueue_job', 'id')), %(queue)s, %(task)s,
       {ARGUMENTS}, 1, 1, 'succeeded', statement_timestamp(), statement_timestamp(),
       'pgqueue_bench'
  FROM generate_series(1, %(rows)s) n
"""

# What stands beside the measured jobs, by the name of its shape.
SHAPES: dict[str, tuple[str, str]] = {
    "ready": (READY, QUEUE),
    "other_queue": (READY, QUEUE_ELSEWHERE),
    "scheduled": (SCHEDULED, QUEUE),
    "parked": (PARKED, QUEUE),
    "archived": (ARCHIVED, QUEUE),
}

# Locks: SHARE UPDATE EXCLUSIVE. What autovacuum would do at any moment: done now, it
# does not happen while something is measured.
TIDY = "VACUUM (ANALYZE) pgqueue_job, pgqueue_archived_job"

# Locks: none. Writes what a load has left to be written, likewise.
CHECKPOINT = "CHECKPOINT"


def fill(cursor: Cursor, shape: str, *, task: str, rows: int) -> None:
    """
    Add *rows* rows of *shape*, and tidy up after it.

    Args:
        cursor: Of psycopg, in autocommit, in a scratch place.
        shape: A key of SHAPES.
        task: The name that the rows carry.
        rows: How many.

    Raises:
        ValueError: The cursor leads to no scratch place.
    """
    scratch.refuse_others(cursor)
    statement, queue = SHAPES[shape]
    cursor.execute(statement, {"queue": queue, "task": task, "rows": rows})
    tidy(cursor)
    # A role that may not leaves it to the server's own timer.
    with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
        cursor.execute(CHECKPOINT)


def add_ready(cursor: Cursor, *, task: str, rows: int) -> None:
    """Add *rows* jobs that are due now, in one commit."""
    scratch.refuse_others(cursor)
    cursor.execute(READY, {"queue": QUEUE, "task": task, "rows": rows})


def tidy(cursor: Cursor) -> None:
    """Vacuum and analyse the tables of the jobs and of the archive."""
    cursor.execute(TIDY)
