"""
What the pipeline jobs that count cost: metrics, failures and conservation.

    python -m tests.benchmarks.spark.counting [--rows 245000]

On a server of the run's own. The rows ended within three days, one of eight after an
error and one of fifty as a dead letter. Each job runs twice, and Spark is not needed:
the first run counts all, the second has nothing new. Told are the seconds of a run, and
those of processors that it and the server have used.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from typing import Any

from django_pgqueue.spark.job import find_job
from django_pgqueue.spark.run import Plan
from django_pgqueue.spark.running import run_job
from tests.benchmarks.spark.processors import seconds_of
from tests.benchmarks.spark.server import Place, migrated_server

JOBS = ("metrics", "failures", "conservation")

DAYS = """
SELECT pgqueue_make_archive_day((now() AT TIME ZONE 'UTC')::date - n)
  FROM generate_series(0, 3) AS n
"""
# In the order in which they ended, as settles store them.
ENDED = r"""
CREATE TEMPORARY TABLE ended AS
SELECT n AS id, (ARRAY['default', 'mail', 'slow'])[1 + n %% 3] AS queue,
       'shop.tasks.task_' || n %% 12 AS task,
       jsonb_build_object('order_id', n, 'note', repeat('x', 150)) AS kwargs,
       at - interval '3 s' AS enqueued_at, at - interval '1 s' * (n %% 200) / 100
           AS started_at, at AS finished_at, n %% 50 = 0 AS is_dead,
       CASE WHEN n %% 8 = 0 OR n %% 50 = 0 THEN jsonb_build_array(jsonb_build_object(
           'kind', 'error', 'type', 'shop.errors.Late' || n %% 7,
           'message', 'Order ' || n || ' of ''customer ' || n %% 999 || ''' is late',
           'traceback', repeat(
               E'  File "/srv/lib/python3.11/site-packages/x/y.py", line 12, in call\n'
               || E'    return f(x)\n', 8)
               || '  File "/srv/shop/tasks' || n %% 5 || E'.py", line 7, in send\n',
           'delivery', 1, 'ran_seconds', 0.25, 'at', at - interval '2 s'))
       ELSE '[]' END AS errors
  FROM (SELECT n, now() - interval '3 days' * (1 - n::float8 / %(rows)s) AS at
          FROM generate_series(1, %(rows)s) AS n) AS ended
"""
ARCHIVED = """
INSERT INTO pgqueue_archived_job (id, queue, task, kwargs, enqueued_at, attempt,
                                  deliveries, errors, state, started_at, finished_at)
SELECT id, queue, task, kwargs, enqueued_at, 1, 1, errors, 'succeeded', started_at,
       finished_at
  FROM ended WHERE NOT is_dead
"""
DEAD = """
INSERT INTO pgqueue_dead_letter (id, queue, task, kwargs, enqueued_at, attempt,
                                 deliveries, errors, reason, started_at, finished_at)
SELECT id, queue, task, kwargs, enqueued_at, 1, 1, errors, 'exhausted', started_at,
       finished_at
  FROM ended WHERE is_dead
"""


def fill(place: Place, rows: int) -> None:
    """Store *rows* jobs that have ended."""
    with place.connect() as connection:
        connection.execute(DAYS)
        connection.execute(ENDED, {"rows": rows})
        connection.execute(ARCHIVED)
        connection.execute(DEAD)
        connection.execute("VACUUM (ANALYZE) pgqueue_archived_job, pgqueue_dead_letter")
        connection.execute("CHECKPOINT")


def count(place: Place, name: str) -> dict[str, Any]:
    """Run the job *name*; return what that took."""
    job = find_job(name)
    plan = Plan(
        job=job, options=job.read_options({}), dsn=place.dsn, sessions=_no_spark
    )
    before = seconds_of(os.getpid()), seconds_of(place.postmaster)
    began = time.perf_counter()
    ended = run_job(plan)
    assert ended.error is None, ended.error
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "own": round(seconds_of(os.getpid()) - before[0], 2),
        "server": round(seconds_of(place.postmaster) - before[1], 2),
        "rows_in": ended.rows_in,
        "rows_out": ended.rows_out,
    }


def _no_spark() -> Any:
    raise AssertionError("Spark was asked for.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark.counting")
    parser.add_argument("--rows", type=int, default=245_000)
    asked = parser.parse_args(arguments)
    with migrated_server() as place:
        fill(place, asked.rows)
        for name in JOBS:
            told = [count(place, name) for _ in range(2)]
            print(name, *map(json.dumps, told), sep="\n  ")  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
