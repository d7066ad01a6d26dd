"""
Jobs are claimed ahead only as far as they can start within the horizon of 0.1 s.

So short jobs come in hundreds, long ones never; nobody waits behind a long job that
happens to be in the same process; and what is more important starts before the rest.
"""

from __future__ import annotations

import time

import pytest
from django.db import connection, transaction

from tests.app import mixed_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, wait_until_final

pytestmark = pytest.mark.slow

MODULES = {"TASK_MODULES": ["tasks", "mixed_tasks"]}

HORIZON_SECONDS = 0.1
# The claim that is under way when a job is committed does not see it: so long at most,
# on a machine that others use too.
CLAIM_SECONDS = 0.05

# For some thousand short jobs, on such a machine.
DRAIN_SECONDS = 30.0

LEASED = "SELECT count(*) FROM pgqueue_job WHERE leased_by IS NOT NULL"
LEFT = "SELECT count(*) FROM pgqueue_job"


def number(query):
    """Return what a query counts."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchone()[0]


def started(the_ledger, ids):
    """Return the starts among *ids*."""
    asked = set(ids)
    return [entry for entry in the_ledger.entries("start") if entry.job in asked]


def wait_until_started(the_ledger, ids, count):
    """Return the first starts among *ids*, once there are *count*."""
    return wait_for(
        lambda: (found := started(the_ledger, ids))[count - 1 :] and found,
        DRAIN_SECONDS,
        f"{count} jobs have started",
    )


def looks_until(is_over, query=LEASED):
    """Return what the query counted at each look, until the condition is true."""
    seen = []

    def look():
        seen.append(number(query))
        return is_over()

    wait_for(look, DRAIN_SECONDS)
    return seen


@pytest.mark.parametrize(
    "processes, threads, short, long",
    [
        (2, 1, mixed_tasks.mixed, mixed_tasks.mixed),
        (2, 1, mixed_tasks.mixed_batched, mixed_tasks.other),
        (2, 4, mixed_tasks.mixed_batched, mixed_tasks.mixed_batched),
        (2, 4, mixed_tasks.mixed, mixed_tasks.other),
        # A thread of the same process is free.
        (1, 4, mixed_tasks.mixed_batched, mixed_tasks.other),
    ],
)
def test_no_short_job_waits_for_a_long_one(
    start_worker, the_ledger, gate, processes, threads, short, long
):
    """All short ones are done while the long ones in their midst still run."""
    start_worker(processes=processes, threads=threads, pgqueue=MODULES)

    count = threads if processes > 1 else threads - 1
    with transaction.atomic():
        shorts = enqueue(short, 1_000)
        longs = enqueue(long, count, gate=str(gate))
        shorts += enqueue(short, 1_000)
    wait_until_started(the_ledger, longs, count)
    wait_until_final(shorts, DRAIN_SECONDS)

    assert [] == the_ledger.entries("end")
    gate.touch()
    wait_until_final(longs)
    assert {} == the_ledger.repeated()


@pytest.mark.parametrize("threads", [1, 4])
def test_long_jobs_are_never_claimed_ahead(start_worker, the_ledger, threads):
    """At every look, no more are leased than run."""
    start_worker(threads=threads, pgqueue=MODULES)

    ids = enqueue(mixed_tasks.mixed, 6 * threads, seconds=0.3)
    seen = looks_until(lambda: not number(LEFT))

    assert threads == max(seen)
    assert 6 * threads == len(started(the_ledger, ids))


def most_within(seconds, times):
    """Return the most of the sorted *times* that lie within so many seconds."""
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] > seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


@pytest.mark.parametrize(
    "task, threads, jobs",
    [
        (mixed_tasks.mixed_batched, 1, 20_000),
        (mixed_tasks.mixed_batched, 4, 20_000),
        (mixed_tasks.mixed, 1, 2_500),
        (mixed_tasks.mixed, 16, 10_000),
    ],
    ids=["batched", "batched-4", "immediate", "immediate-16"],
)
def test_what_is_more_important_starts_within_the_horizon(
    start_worker, the_ledger, task, threads, jobs
):
    """
    In the middle of a drain, by the number of others that start before it.

    No more of them than could start in the horizon and one claim, at the drain's best.
    """
    start_worker(threads=threads, pgqueue=MODULES)
    # Once it has learnt how short they are.
    enqueue(task, jobs)
    committed = {}
    for left in range(jobs * 4 // 5, jobs // 5, -jobs // 10):
        wait_for(lambda: number(LEFT) < left, DRAIN_SECONDS)  # noqa: B023
        urgent = task.using(priority=50).delay()
        committed[urgent.id] = time.monotonic()
    wait_for(lambda: not number(LEFT), DRAIN_SECONDS)

    starts = the_ledger.entries("start")
    times = sorted(entry.at for entry in starts)
    ahead = {
        entry.job: sum(committed[entry.job] <= at < entry.at for at in times)
        for entry in starts
        if entry.job in committed
    }
    assert set(committed) == set(ahead)
    fit = most_within(HORIZON_SECONDS + CLAIM_SECONDS, times)
    assert max(ahead.values()) <= fit, (ahead, fit)
