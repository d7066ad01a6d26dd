"""Lanes: order and limits by key, by real workers."""

from __future__ import annotations

import os
import signal
from collections import Counter, defaultdict
from contextlib import suppress

import pytest
from django.db import connection, transaction

from django_pgqueue import publish, publish_many
from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.topics.publish import message
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


@pytest.mark.parametrize("task", [tasks.skips, tasks.rejects], ids=lambda t: t.name)
def test_others_need_not_wait_for_one_that_fails(start_worker, the_ledger, task):
    """They go on in their order; it waits for its attempt, or is a dead letter."""
    start_worker(processes=2)
    ids = [job.id for job in task.bulk([("c", number) for number in range(20)])]

    wait_until_final(ids[1:])

    assert {"c": [*range(20)]} == started(the_ledger)
    assert {"c": 1} == most_at_once(the_ledger)
    waits = Job.objects.filter(pk=ids[0], visible_at=None, attempt=1).exists()
    dead = DeadLetter.objects.filter(pk=ids[0], reason="rejected", attempt=1).exists()
    assert (task is tasks.skips, task is tasks.rejects) == (waits, dead)


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


def test_messages_of_a_key_are_handled_one_by_one_in_order(start_worker, the_ledger):
    """Also those of before there was a subscription; a failing one holds them up."""
    customers, each = 10, 12
    payloads = [
        {"customer": f"c{customer}", "number": number}
        for number in range(each)
        for customer in range(customers)
    ]
    third = len(payloads) // 3

    def send(some):
        for payload in some:
            publish("visits.made", payload, key=payload["customer"])

    send(payloads[:third])
    start_worker(processes=2, pgqueue={"TASK_MODULES": ["lane_subscriber_tasks"]})
    done = ArchivedJob.objects.filter(state="succeeded")
    wait_for(lambda: done.count() == third, what="the back-fill")
    send(payloads[third : 2 * third])
    with transaction.atomic():
        publish_many(
            [
                message("visits.made", payload, key=payload["customer"])
                for payload in payloads[2 * third :]
            ]
        )

    wait_for(lambda: done.count() == len(payloads), what="all messages")
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
    wait_for(lambda: 3 == len(the_ledger.entries("start")), what="three jobs")

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


@pytest.mark.parametrize("capacity", [None, 2])
def test_jobs_of_lanes_start_when_they_are_due(start_worker, the_ledger, capacity):
    """Not before, and the leader does not miss it. Where two run at a time, nothing
    says which of them begins first."""
    start_worker()
    ids = insert(3, capacity=capacity, apart="0.4 s")

    final = wait_until_final(ids)
    rows = ArchivedJob.objects.filter(pk__in=final)
    assert all(row.run_after <= row.started_at for row in rows)
    (numbers,) = started(the_ledger).values()
    assert [1, 2, 3] == (numbers if capacity is None else sorted(numbers))


def test_a_job_that_is_cancelled_makes_way(start_worker, the_ledger, gate):
    """Those behind it do not wait for the leader to find out."""
    start_worker()
    first = tasks.alone.using(run_after="1h").delay(number=1)
    second = tasks.alone.delay(number=2)
    assert Job.objects.filter(pk=second.id, visible_at__isnull=True).exists()

    assert first.cancel()
    wait_until_final([second.id], timeout=3)
    assert {"": [2]} == started(the_ledger)


def test_a_retry_now_ends_the_wait_of_a_group(start_worker, the_ledger):
    """The head is due at once, and the others after it."""
    start_worker()
    first = tasks.alone.using(run_after="1h").delay(number=1)
    second = tasks.alone.delay(number=2)

    assert first.retry()
    wait_until_final([first.id, second.id], timeout=3)
    assert {"": [1, 2]} == started(the_ledger)


def test_a_redriven_job_goes_through_its_lane(start_worker, the_ledger):
    """It is the first of its group again, by its id."""
    worker = start_worker()
    dead = tasks.fails_once.delay("c", 1)
    wait_until_final([dead.id])
    worker.stop()
    other = tasks.fails_once.delay("c", 2)

    assert dead.retry()
    start_worker("--drain")
    wait_until_final([dead.id, other.id])
    ends = [entry.note[1] for entry in the_ledger.entries("start")]
    assert [1, 1, 2] == ends


def test_a_draining_worker_leaves_when_its_lanes_are_empty(start_worker, the_ledger):
    """It has been through all of them, one job after the other."""
    ids = insert(20)

    worker = start_worker("--drain")
    assert 0 == worker.wait()
    assert set(ids) == set(ArchivedJob.objects.values_list("pk", flat=True))
    assert {"c": [*range(1, 21)]} == started(the_ledger)


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


def test_what_a_crash_left_undone_is_found(start_worker, the_ledger):
    """A job went without a word: the leader lets the next one through."""
    start_worker()
    first, *others = insert(3, apart="1 h")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgqueue_job SET lane_due_at = '2001-01-01'")
        cursor.execute("DELETE FROM pgqueue_job WHERE id = %s", [first])

    wait_until_final(others)
    assert {"c": [2, 3]} == started(the_ledger)
