"""
Ticker: forks a scheduler again and again, which issues a tick and may die of it.

``python -m tests.crashes.ticker ROUNDS`` prints a line for each: whether it was killed,
and how many ticks and jobs there are then.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, timedelta

import django

NAME = "nightly"
PERIOD = timedelta(seconds=60)

FOUND = """
SELECT (SELECT count(*) FROM pgqueue_tick), (SELECT count(*) FROM pgqueue_job),
       (SELECT count(*) FROM pgqueue_tick t JOIN pgqueue_job j
           ON j.id = t.job_id AND j.schedule_id = t.schedule_id
          AND (j.headers ->> 'pgqueue.tick')::timestamptz = t.due_at),
       (SELECT extract(epoch FROM last_tick - ticks_from)::int / 60
          FROM pgqueue_schedule)
"""


def main(rounds: int) -> None:
    """Fork *rounds* schedulers, one after the other; each finds one more tick due."""
    django.setup()
    for n in range(1, rounds + 1):
        pid = os.fork()
        if not pid:
            status = 1
            try:
                issue(n)
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(pid, 0)
        print(json.dumps([os.WIFSIGNALED(status), *look()]), flush=True)  # noqa: T201


def issue(n: int) -> None:
    """Issue what is due when *n* periods have gone by, as the loop of a worker does."""
    from django_pgqueue.postgres.connect import Link
    from django_pgqueue.schedules.store import find_one
    from django_pgqueue.worker.chores.scheduler import Scheduler

    link = Link("default", name="ticker")
    with link.cursor() as cursor:
        row = find_one(cursor, NAME)
    assert row is not None
    Scheduler(link)._issue(row, row.ticks_from.astimezone(UTC) + n * PERIOD)


def look() -> list[int | None]:
    """Return how many ticks, jobs and pairs there are, and which tick is the last."""
    from django_pgqueue.postgres.connect import Link

    link = Link("default", name="ticker")
    try:
        with link.cursor() as cursor:
            cursor.execute(FOUND)
            return list(cursor.fetchone() or ())
    finally:
        link.drop()


if __name__ == "__main__":
    main(int(sys.argv[1]))
