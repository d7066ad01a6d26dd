"""Lanes: order and limits by key, by real workers."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from django.db import transaction

from django_pgqueue.models import Job
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
    """On all processes together, for each key; and so many do run at a time."""
    start_worker(processes=2)
    items = [{"tenant": f"t{n % 4}", "number": n} for n in range(200)]

    wait_until_final([job.id for job in tasks.limited.bulk(items)])
    most = most_at_once(the_ledger)
    assert {"t0", "t1", "t2", "t3"} == set(most)
    assert 3 == max(most.values())


def test_what_is_limited_is_neither_claimed_nor_tried(start_worker, the_ledger, gate):
    """Beyond the limit jobs stay parked, with no attempt used up."""
    start_worker(processes=2)
    ids = [tasks.gated.delay(gate=str(gate)).id for _ in range(10)]
    wait_for(lambda: 3 == len(the_ledger.entries("start")), 10, "three jobs")

    parked = Job.objects.filter(visible_at__isnull=True)
    assert 7 == parked.count()
    assert {(0, 0)} == set(parked.values_list("attempt", "deliveries"))

    gate.touch()
    final = wait_until_final(ids)
    assert {1} == {place.attempt for place in final.values()}


def test_a_rolled_back_job_was_never_in_its_lane(start_worker, the_ledger):
    """Nobody waits for it."""
    start_worker()
    with transaction.atomic():
        tasks.alone.delay(number=1)
        transaction.set_rollback(True)
    second = tasks.alone.delay(number=2)

    wait_until_final([second.id])
    assert {"": [2]} == started(the_ledger)
