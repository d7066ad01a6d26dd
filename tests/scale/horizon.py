"""A transaction that holds back vacuum for minutes, and what workers make of it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import connections

from django_pgqueue.postgres.connect import connect
from tests.app.tasks import noop
from tests.scale.fleet import worker

RATE = int(os.environ.get("PGQUEUE_SCALE_RATE", "300"))
SECONDS = float(os.environ.get("PGQUEUE_SCALE_SECONDS", "30"))
PARTS = 3

# From the enqueue to the first line of the task, by the database's clock.
WAITS = """
SELECT count(*),
       percentile_cont(0.5) WITHIN GROUP (ORDER BY waited),
       percentile_cont(0.99) WITHIN GROUP (ORDER BY waited), max(waited)
  FROM (SELECT 1000 * extract(epoch FROM started_at - enqueued_at) AS waited
          FROM pgqueue_archived_job
         WHERE queue = %(queue)s AND enqueued_at >= %(since)s
           AND finished_at >= %(since)s) w
"""
NOW = "SELECT clock_timestamp()"
PIN = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pgqueue_worker"
QUEUE = "horizon"


def horizon() -> Iterator[dict[str, Any]]:
    """Yield how long jobs wait before, under and after such a transaction."""
    with (
        connect("default", name="tests: horizon") as raw,
        connect("default", name="tests: pin") as pin,
        worker("--queues", QUEUE, "--processes=1", "--threads=4"),
        ThreadPoolExecutor(1) as pool,
    ):
        raw.execute("VACUUM pgqueue_job")
        over = threading.Event()
        enqueued = pool.submit(_enqueue_until, over)
        try:
            time.sleep(3.0)
            yield from _part(raw, "before", SECONDS / PARTS)
            pin.execute(PIN)
            for number in range(PARTS):
                yield from _part(
                    raw, f"held, part {number + 1} of {PARTS}", SECONDS / PARTS
                )
            pin.rollback()
            raw.execute("VACUUM pgqueue_job")
            yield from _part(raw, "released and vacuumed", SECONDS / PARTS)
        finally:
            over.set()
            enqueued.result(60)


def _part(raw: Any, what: str, seconds: float) -> Iterator[dict[str, Any]]:
    (since,) = raw.execute(NOW).fetchone()
    time.sleep(seconds)
    jobs, p50, p99, longest = raw.execute(
        WAITS, {"queue": QUEUE, "since": since}
    ).fetchone()
    yield {
        "what": what,
        "seconds": round(seconds),
        "jobs": jobs,
        "p50 ms": round(p50 or -1, 2),
        "p99 ms": round(p99 or -1, 2),
        "max ms": round(longest or -1, 2),
    }


def _enqueue_until(over: threading.Event) -> int:
    """Enqueue job after job, RATE a second; return how many."""
    task = noop.using(queue=QUEUE)
    jobs, at = 0, time.monotonic()
    while not over.is_set():
        task.delay()
        jobs += 1
        at += 1 / RATE
        over.wait(max(at - time.monotonic(), 0))
    connections["default"].close()
    return jobs
