"""
Shapes: large tables of every kind that a queue can have, filled within seconds.

Each is one INSERT … SELECT generate_series on the server. Call them with a cursor on a
database that holds nothing else: all three tables are emptied first.
"""

from __future__ import annotations

import os
from typing import Any

# `make test` takes the first; PGQUEUE_SCALE_ROWS says another.
ROWS_DEFAULT = 100_000
ROWS = int(os.environ.get("PGQUEUE_SCALE_ROWS", ROWS_DEFAULT))

TABLES = ("pgqueue_job", "pgqueue_archived_job", "pgqueue_dead_letter")
QUEUES = 1_000

# One row in this many has the tag "rare".
RARE = 10_000

HEADERS = f"""
CASE WHEN n %% {RARE} = 0 THEN '{{"tags": ["rare", "x"]}}'::jsonb ELSE '{{}}' END
"""

DUE = f"""
INSERT INTO pgqueue_job (task, args, headers, priority, visible_at)
SELECT 'shop.tasks.t' || n %% 20, jsonb_build_array(n), {HEADERS}, n %% 3,
       clock_timestamp() - (%(rows)s - n) * interval '1 ms'
  FROM generate_series(1, %(rows)s) n
"""
FUTURE = f"""
INSERT INTO pgqueue_job (task, args, headers, visible_at, attempt, deliveries)
SELECT 'shop.tasks.t' || n %% 20, jsonb_build_array(n), {HEADERS},
       clock_timestamp() + interval '1 hour' + n * interval '1 ms', n %% 2, n %% 2
  FROM generate_series(1, %(rows)s) n
"""
# The trigger parks what has a lane.
PARKED = f"""
INSERT INTO pgqueue_job (task, args, headers, lane)
SELECT 'shop.tasks.t' || n %% 20, jsonb_build_array(n), {HEADERS}, 'one'
  FROM generate_series(1, %(rows)s / 2) n
"""
HALF_FUTURE = FUTURE.replace("%(rows)s)", "%(rows)s / 2)")
MANY_QUEUES = f"""
INSERT INTO pgqueue_job (task, args, headers, queue)
SELECT 'shop.tasks.t' || n %% 20, jsonb_build_array(n), {HEADERS}, 'q' || n %% {QUEUES}
  FROM generate_series(1, %(rows)s) n
"""
# All of it on the day that is now, in UTC, and as far back in it as it goes.
FINISHED = """
greatest(date_trunc('day', statement_timestamp(), 'UTC'),
         statement_timestamp() - ({rows} - n) * interval '80 ms')
"""
ARCHIVED = f"""
INSERT INTO pgqueue_archived_job (id, task, args, headers, attempt, deliveries, state,
                                  result, started_at, finished_at, worker)
SELECT nextval(pg_get_serial_sequence('pgqueue_job', 'id')), 'shop.tasks.t' || n %% 20,
       jsonb_build_array(n), {HEADERS}, 1, 1,
       CASE n %% 20 WHEN 0 THEN 'cancelled' WHEN 1 THEN 'expired' ELSE 'succeeded' END,
       CASE WHEN n %% 2 = 0 THEN to_jsonb(n) END, {FINISHED.format(rows="%(rows)s")},
       {FINISHED.format(rows="%(rows)s")}, 'worker-' || n %% 4
  FROM generate_series(1, %(rows)s) n
"""
DEAD = f"""
INSERT INTO pgqueue_dead_letter (id, queue, task, args, headers, attempt, deliveries,
                                 errors, reason, started_at, finished_at, worker)
SELECT nextval(pg_get_serial_sequence('pgqueue_job', 'id')), 'q' || n %% 10,
       'shop.tasks.t' || n %% 20, jsonb_build_array(n), {HEADERS}, 5, 5,
       '[{{"kind": "error", "type": "ValueError", "message": "no"}}]', 'exhausted',
       statement_timestamp() - (%(rows)s - n) * interval '10 s',
       statement_timestamp() - (%(rows)s - n) * interval '10 s', 'worker-' || n %% 4
  FROM generate_series(1, %(rows)s) n
"""

# What fills the tables, and with which share of the rows.
SHAPES: dict[str, list[tuple[str, float]]] = {
    "all due": [(DUE, 1)],
    "all in the future": [(FUTURE, 1)],
    "half parked in one lane": [(PARKED, 1), (HALF_FUTURE, 1)],
    "a thousand queues": [(MANY_QUEUES, 1)],
    "99 % archived or dead": [(DUE, 0.01), (ARCHIVED, 0.5), (DEAD, 0.49)],
}

# What the planner remembers of a table survives TRUNCATE, and its partitions' too.
FORGET = """
DELETE FROM pg_statistic WHERE starelid IN (
    SELECT oid FROM pg_class WHERE relname LIKE 'pgqueue\\_%%')
"""
AUTOVACUUM_OFF = """
DO $$ DECLARE name regclass; BEGIN
    FOR name IN SELECT oid FROM pg_class
                 WHERE relname LIKE 'pgqueue\\_%' AND relkind = 'r'
    LOOP EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', name);
    END LOOP;
END $$
"""


def fill(cursor: Any, shape: str, rows: int = ROWS) -> None:
    """
    Empty the tables and give them *rows* rows of *shape*, never analysed.

    Args:
        cursor: In autocommit; its role owns the tables, and may write pg_statistic.
        shape: A key of SHAPES.
        rows: Over all three tables.
    """
    cursor.execute(f"TRUNCATE {', '.join(TABLES)}")
    cursor.execute(AUTOVACUUM_OFF)
    cursor.execute(FORGET, {})
    for statement, share in SHAPES[shape]:
        cursor.execute(statement, {"rows": int(rows * share)})


def analyse(cursor: Any) -> None:
    """Let the planner look at the tables as they are now."""
    cursor.execute(f"ANALYZE {', '.join(TABLES)}")
