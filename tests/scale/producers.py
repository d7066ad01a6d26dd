"""Sixty-four producers that commit one job at a time, with wakes and without."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any

from django.db import connections, transaction

from django_pgqueue.postgres import wake
from django_pgqueue.postgres.connect import connect
from django_pgqueue.tasks import enqueuer
from tests.app.tasks import noop

PRODUCERS = int(os.environ.get("PGQUEUE_SCALE_PRODUCERS", "64"))
RUNS = 5
RUN_SECONDS = 3.0

FORK = multiprocessing.get_context("fork")


def producers() -> Iterator[dict[str, Any]]:
    """Yield commits a second with a wake after each, and of the same without."""
    connections.close_all()
    heard = threading.Event()
    with connect("default", name="tests: listener") as listener:
        wake.listen(listener.cursor(), [wake.channel(listener.cursor())])
        thread = threading.Thread(target=_drain, args=[listener, heard], daemon=True)
        thread.start()
        found: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(RUNS):
            for wakes in (True, False):
                found[wakes].append(_run(wakes))
        heard.set()
        thread.join()
    ratios = [
        with_ / without
        for with_, without in zip(found[True], found[False], strict=True)
    ]
    yield {
        "what": f"{PRODUCERS} producers",
        "with wakes/s": round(statistics.median(found[True])),
        "without/s": round(statistics.median(found[False])),
        "ratio": round(statistics.median(ratios), 2),
        "min": round(min(ratios), 2),
        "max": round(max(ratios), 2),
    }


def _run(wakes: bool) -> float:
    """Return the commits of all producers in a second."""
    barrier = FORK.Barrier(PRODUCERS)
    done = FORK.Queue()
    processes = [
        FORK.Process(target=_produce, args=[barrier, done, wakes])
        for _ in range(PRODUCERS)
    ]
    for process in processes:
        process.start()
    counts = [done.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    return sum(counts) / RUN_SECONDS


def _produce(barrier: Any, done: Any, wakes: bool) -> None:
    if not wakes:
        enqueuer.wake_after_commit = lambda *args: None
    task = noop.using(queue="producers")
    connections["default"].ensure_connection()
    barrier.wait(60)
    until, count = time.monotonic() + RUN_SECONDS, 0
    while time.monotonic() < until:
        with transaction.atomic():
            task.delay()
        count += 1
    connections.close_all()
    done.put(count)


def _drain(connection: Any, over: threading.Event) -> None:
    while not over.is_set():
        for _ in connection.notifies(timeout=0.1):
            pass
