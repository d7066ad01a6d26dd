"""
A large queue: days of archive, a backlog and dead letters, loaded piece by piece.

Each piece is one INSERT … SELECT generate_series in a transaction of its own, together
with a note that it is there. So several connections share the work, and a load that
was stopped goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from django_pgqueue.postgres.connect import connect

# Rows of one piece: a few seconds.
PIECE_ROWS = 100_000

NOTES = "CREATE TABLE IF NOT EXISTS scale_piece (name text PRIMARY KEY)"
NOTE = "INSERT INTO scale_piece VALUES (%(name)s) ON CONFLICT DO NOTHING RETURNING 1"
NOTED = "SELECT name FROM scale_piece"

# From the first day of the archive to the last, which is today, by their names.
DAY = """
SELECT format('CREATE TABLE IF NOT EXISTS pgqueue_archived_job_%%s PARTITION OF
               pgqueue_archived_job FOR VALUES FROM (%%L) TO (%%L)',
              to_char(day, 'YYYYMMDD'), day || ' 00:00+00', day + 1 || ' 00:00+00')
  FROM (SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date - n AS day
          FROM generate_series(1, %(days)s - 1) n) past
"""

# About a hundred bytes of arguments, a tag on one row in a hundred, a result on one in
# ten, ten queues, twenty tasks of the past; of those that wait, one that can run.
ENDED = "'shop.tasks.t' || n %% 20"
RUNNABLE = "'tests.app.tasks.noop'"
COLUMNS = """
'q' || n %% 10, {task},
jsonb_build_object('order', n, 'text', 'lorem ipsum dolor sit amet, consectetur '
                   'adipiscing elit, sed do eiusmod'),
CASE WHEN n %% 100000 = 0 THEN '{{"tags": ["rare", "often"]}}'::jsonb
     WHEN n %% 100 = 0 THEN '{{"tags": ["often"]}}' ELSE '{{}}' END
"""
NEXT_ID = "nextval(pg_get_serial_sequence('pgqueue_job', 'id'))"
NUMBERS = "generate_series(%(first)s::bigint, %(last)s::bigint) n"

# The whole of a day that is over; of today, the time until now.
ARCHIVED = f"""
INSERT INTO pgqueue_archived_job (id, queue, task, kwargs, headers, attempt, deliveries,
                                  state, result, started_at, finished_at, worker)
SELECT {NEXT_ID}, {COLUMNS.format(task=ENDED)}, 1, 1,
       CASE n %% 500 WHEN 0 THEN 'cancelled' WHEN 1 THEN 'expired' ELSE 'succeeded' END,
       CASE WHEN n %% 10 = 0 THEN to_jsonb(n) END, at - interval '50 ms', at,
       'web-1:' || n %% 4
  FROM (SELECT n, lower(day) + (upper(day) - lower(day)) * (n - 1)
                    / %(total)s AS at
          FROM (SELECT tstzrange(midnight, least(midnight + interval '1 day',
                                                 statement_timestamp())) AS day
                  FROM (SELECT date_trunc('day', statement_timestamp(), 'UTC')
                               - %(days_ago)s * interval '1 day' AS midnight) m) d,
               {NUMBERS}) numbered
"""
WAITING = f"""
INSERT INTO pgqueue_job (queue, task, kwargs, headers, priority, visible_at)
SELECT {COLUMNS.format(task=RUNNABLE)}, n %% 3, clock_timestamp() - interval '1 hour'
       + n * interval '1 ms'
  FROM {NUMBERS}
"""
DEAD = f"""
INSERT INTO pgqueue_dead_letter (id, queue, task, kwargs, headers, attempt, deliveries,
                                 errors, reason, started_at, finished_at, worker)
SELECT {NEXT_ID}, {COLUMNS.format(task=ENDED)}, 5, 5,
       (SELECT jsonb_agg(jsonb_build_object(
               'kind', 'error', 'type', 'builtins.ValueError', 'message', 'bad ' || n,
               'attempt', a, 'at', statement_timestamp(),
               'traceback', repeat('  File "/srv/shop/tasks.py", line ' || a, 20)))
          FROM generate_series(1, 5) a),
       CASE WHEN n %% 1000 = 0 THEN 'timeout' ELSE 'exhausted' END,
       at, at, 'web-1:' || n %% 4
  FROM (SELECT n, statement_timestamp() - interval '100 days'
                  + n * interval '100 days' / %(total)s AS at
          FROM {NUMBERS}) numbered
"""


@dataclass(frozen=True, slots=True)
class Size:
    """How many rows of each kind."""

    archived: int = 10_000_000
    days: int = 14
    waiting: int = 1_000_000
    dead: int = 100_000


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement of a load."""

    name: str
    statement: str
    params: dict[str, Any]


def pieces(size: Size) -> list[Piece]:
    """Return what makes up a queue of *size*, the oldest rows first."""
    per_day = size.archived // size.days
    return [
        *(
            piece
            for days_ago in reversed(range(size.days))
            for piece in _split(
                f"day {days_ago}", ARCHIVED, per_day, {"days_ago": days_ago}
            )
        ),
        *_split("dead", DEAD, size.dead, {}),
        *_split("waiting", WAITING, size.waiting, {}),
    ]


def load(
    alias: str, size: Size, *, connections: int = 2, seconds: float = 1e9
) -> list[str]:
    """
    Load what is not there yet of *size*; return the names of what is left.

    Args:
        alias: A database with the tables of this package.
        size: How many rows.
        connections: How many load at once.
        seconds: No piece begins later than this.
    """
    until = time.monotonic() + seconds
    with connect(alias, name="tests: load") as connection:
        connection.execute(NOTES)
        for (statement,) in connection.execute(DAY, {"days": size.days}).fetchall():
            connection.execute(statement)
        there = {name for (name,) in connection.execute(NOTED)}
    todo = [piece for piece in pieces(size) if piece.name not in there]

    def work(share: Sequence[Piece]) -> list[str]:
        with connect(alias, name="tests: load") as connection:
            for number, piece in enumerate(share):
                if time.monotonic() > until:
                    return [piece.name for piece in share[number:]]
                with connection.transaction():
                    connection.execute(NOTE, {"name": piece.name})
                    connection.execute(piece.statement, piece.params)
        return []

    with ThreadPoolExecutor(connections) as pool:
        shares = [todo[n::connections] for n in range(connections)]
        return [name for left in pool.map(work, shares) for name in left]


def _split(name: str, statement: str, rows: int, params: dict[str, Any]) -> list[Piece]:
    """Return pieces of *rows* rows together."""
    firsts = range(1, rows + 1, PIECE_ROWS)
    return [
        Piece(
            f"{name} from {first}",
            statement,
            {
                **params,
                "first": first,
                "last": min(first + PIECE_ROWS - 1, rows),
                "total": rows,
            },
        )
        for first in firsts
    ]
