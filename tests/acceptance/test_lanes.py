"""Lanes: order and limits by key, by real workers."""

from __future__ import annotations

import os
import signal
from collections import Counter, defaultdict
from contextlib import suppress

import pytest
from django.db import connection

from tests.app import lane_tasks as tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import wait_until_final


def most_at_once(the_ledger):
    """Return how many jobs of each key ran at a time, at most."""
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for entry in the_ledger.entries():
        if entry.event not in {"start", "end", "failed"}:
            continue
        key = entry.note[0]
        running[key] += 1 if entry.event == "start" else -1
        most[key] = max(most[key], running[key])
    return most


def started(the_ledger):
    """Return the numbers of each key in the order in which they started first."""
    found: defaultdict[str, dict[int, None]] = defaultdict(dict)
    for entry in the_ledger.entries("start"):
        key, number = entry.note
        found[key][number] = None
    return {key: list(numbers) for key, numbers in found.items()}


@pytest.mark.parametrize("task", [tasks.step, tasks.flaky_step], ids=lambda t: t.name)
def test_jobs_of_a_key_run_one_by_one_in_order(start_worker, the_ledger, task):
    """A failing one holds the others up until it has succeeded."""
    customers, each = 20, 10
    start_worker(processes=2)
    start_worker()
    items = [
        {"customer": f"c{customer}", "number": number}
        for number in range(each)
        for customer in range(customers)
    ]
    half = len(items) // 2
    ids = [job.id for job in task.bulk(items[:half])]
    ids += [task.delay(**item).id for item in items[half:]]

    wait_until_final(ids)
    assert {f"c{n}": 1 for n in range(customers)} == most_at_once(the_ledger)
    assert {f"c{n}": [*range(each)] for n in range(customers)} == started(the_ledger)


def test_no_more_run_at_a_time_than_the_limit_says(start_worker, the_ledger):
    """On all processes together, for each key."""
    start_worker(processes=2)
    items = [{"tenant": f"t{n % 4}", "number": n} for n in range(200)]

    wait_until_final([job.id for job in tasks.limited.bulk(items)])
    most = most_at_once(the_ledger)
    assert {"t0", "t1", "t2", "t3"} == set(most)
    assert max(most.values()) <= 3


INSERT = """
INSERT INTO pgqueue_job (task, kwargs, lane, lane_capacity, run_after)
SELECT 'tests.app.lane_tasks.step', jsonb_build_object('customer', 'c', 'number', n),
       'mine', %(capacity)s, clock_timestamp() + n * %(apart)s::interval
  FROM generate_series(1, %(count)s) n
RETURNING id
"""


def insert(count, *, capacity=None, apart="0"):
    """Store jobs as another program would, which wakes nobody."""
    with connection.cursor() as cursor:
        params = {"count": count, "capacity": capacity, "apart": apart}
        cursor.execute(INSERT, params)
        return [job_id for (job_id,) in cursor.fetchall()]


# By the clock, and by hand -----------------------------------------------------------


def test_what_sql_has_stored_in_a_lane_runs(start_worker, the_ledger):
    """Nobody was woken: the worker that leads finds it, within five seconds."""
    start_worker(processes=2)
    ids = insert(5)

    wait_until_final(ids)
    assert {"c": [1, 2, 3, 4, 5]} == started(the_ledger)


# When processes die ------------------------------------------------------------------


def test_a_killed_process_leaves_its_lanes_in_order(start_worker, the_ledger):
    """What ran, runs again before those behind it; and nothing stays parked."""
    start_worker(processes=2)
    ids = insert(30)
    for many in (5, 12):
        wait_for(lambda many=many: many <= len(the_ledger.entries("end")))
        running = the_ledger.entries("start")[-1]
        # Whom the last round has killed, if nobody has started anything since.
        with suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGKILL)

    wait_until_final(ids)
    assert {"c": [*range(1, 31)]} == started(the_ledger)
