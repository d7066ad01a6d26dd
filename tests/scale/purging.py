"""The purge of millions of rows, by a real leader, beside real workers."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

from django.db import connections

from django_pgqueue.postgres.connect import connect
from tests.app.tasks import noop
from tests.scale.fleet import worker

# On every session of the workers: whoever waits longer for a lock fails, and says so.
LOCK_WAIT_MAX = "100ms"
FAILED_BY_LOCKS = re.compile("55P03|40P01|lock timeout|deadlock")

# What is kept: today and six days, and of dead letters and results one day.
PURGED = {
    "RETENTION": {"archive": "7d", "dead_letters": "1d"},
    "RESULT_TTL_SECONDS": 86_400,
}
WORKERS = 2

# Jobs that are enqueued meanwhile, a second; so many at once.
RATE, AT_ONCE = 500, 50

# A run ends then; the next one goes on.
SECONDS_MAX = 100.0

LEFT = """
SELECT (SELECT count(*) FROM pg_inherits
         WHERE inhparent = 'pgqueue_archived_job'::regclass
           AND right(inhrelid::regclass::text, 8)
               < to_char(statement_timestamp() - interval '7 days', 'YYYYMMDD')),
       (SELECT count(*) FROM pgqueue_dead_letter
         WHERE finished_at < statement_timestamp() - interval '1 day'),
       (SELECT count(*) FROM pgqueue_archived_job WHERE result IS NOT NULL
           AND finished_at < statement_timestamp() - interval '1 day')
"""


class Left(NamedTuple):
    """What a purge has still to do."""

    days: int
    dead_letters: int
    results: int


def purge() -> Iterator[dict[str, Any]]:
    """Yield what a leader purges, and whether it made any worker wait for a lock."""
    with ExitStack() as stack:
        raw = stack.enter_context(connect("default", name="tests: purge"))
        before = _left(raw)
        started = time.perf_counter()
        fleet = [
            stack.enter_context(
                worker(
                    "--queues=live",
                    "--processes=1",
                    "--threads=4",
                    options={"options": f"-c lock_timeout={LOCK_WAIT_MAX}"},
                    pgqueue=PURGED,
                )
            )
            for _ in range(WORKERS)
        ]
        over = threading.Event()
        pool = stack.enter_context(ThreadPoolExecutor(1))
        enqueued = pool.submit(_enqueue_until, over)
        stack.callback(over.set)
        while (left := _left(raw)) != Left(0, 0, 0):
            if time.perf_counter() - started > SECONDS_MAX:
                break
            time.sleep(5.0)
        took = time.perf_counter() - started
        over.set()
        jobs = enqueued.result(60)
        failed = [
            line
            for running in fleet
            for line in running.text().splitlines()
            if FAILED_BY_LOCKS.search(line)
        ]
        yield {
            "what": "purge",
            "before": before,
            "left": left,
            "seconds": round(took),
            "jobs run meanwhile": jobs,
            "lock waits above 100 ms": len(failed),
        }
        yield from ({"what": line} for line in failed[:5])


def _left(raw: Any) -> Left:
    return Left(*raw.execute(LEFT).fetchone())


def _enqueue_until(over: threading.Event) -> int:
    """Enqueue jobs until it is over; return how many."""
    jobs = 0
    task = noop.using(queue="live")
    while not over.wait(AT_ONCE / RATE):
        task.bulk([{}] * AT_ONCE)
        jobs += AT_ONCE
    connections["default"].close()
    return jobs
