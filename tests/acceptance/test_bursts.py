"""
Bursts of jobs and messages at random moments, while the poll is ten minutes away.

PGQUEUE_BURSTS asks for more of them than the suite has time for.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connections
from django.db.models import F

from django_pgqueue import publish
from django_pgqueue.models import ArchivedJob, Job
from tests.app import async_tasks, crash_tasks
from tests.harness.waiting import wait_for

BURSTS = int(os.environ.get("PGQUEUE_BURSTS", "25"))
BURST_JOBS_MAX = 5

# A re-check, on a machine that is busy; the poll is 600 s away.
LATE = timedelta(seconds=2)

# Between two bursts, and between two jobs of one.
GAPS = (0.0, 0.003, 0.02, 0.07, 0.2)
PAUSES = (0.0, 0.002, 0.01, 0.03)

MODULES = {"TASK_MODULES": ["crash_tasks", "async_tasks", "subscriber_tasks"]}
LOAD_QUEUE, LOAD_SECONDS = "load", 0.01


def one(number: int) -> str:
    return "one"


def many(number: int) -> str:
    return f"many{number % 60}"


def ever_new(number: int) -> str:
    return f"new{number}" if number % 10 == 0 else f"few{number % 3}"


@contextmanager
def beside_load():
    """A stream of jobs in another queue, from a thread of its own."""
    over = threading.Event()

    def enqueue() -> None:
        try:
            while not over.wait(LOAD_SECONDS):
                crash_tasks.record.using(queue=LOAD_QUEUE).delay()
        finally:
            connections.close_all()

    thread = threading.Thread(target=enqueue)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def produce(queue: Callable[[int], str], tasks: list, chance: random.Random) -> None:
    """Enqueue and publish in bursts."""
    number = 0
    for burst in range(BURSTS):
        time.sleep(chance.choice(GAPS))
        for _ in range(chance.randint(1, BURST_JOBS_MAX)):
            number += 1
            chance.choice(tasks).using(queue=queue(number)).delay()
            time.sleep(chance.choice(PAUSES))
        if burst % 3 == 0:
            publish("parcels.sent", {"country": chance.choice(["FR", "DE"])})


@pytest.mark.timeout(120 + 2 * BURSTS)
@pytest.mark.parametrize(
    "queue, workers, tasks",
    [
        (one, 1, [crash_tasks.record]),
        (many, 2, [async_tasks.arecord]),
        (ever_new, 2, [crash_tasks.record, async_tasks.arecord]),
    ],
    ids=["one", "many", "new"],
)
def test_no_job_of_a_burst_is_late(start_worker, queue, workers, tasks):
    """Whatever wakes were left out, and whoever took what they told of."""
    started = [
        start_worker(pgqueue=MODULES, threads=8, wait=False) for _ in range(workers)
    ]
    for worker in started:
        worker.wait_for_lines(r"started    worker=")
    seed = random.randrange(10**6)

    with beside_load():
        produce(queue, tasks, random.Random(seed))

    wait_for(lambda: not Job.objects.exists(), what=f"all have run, seed {seed}")
    done = ArchivedJob.objects.filter(enqueued_at__lt=F("started_at") - LATE)
    late = [
        (job.queue, job.started_at - job.enqueued_at)
        for job in done.exclude(queue=LOAD_QUEUE)
    ]
    assert [] == late, f"seed {seed}"
    assert ArchivedJob.objects.exclude(queue=LOAD_QUEUE).count() >= BURSTS
