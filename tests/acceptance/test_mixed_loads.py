"""
Jobs are claimed ahead only as far as they can start within the horizon of 0.1 s.

Short jobs are claimed by the hundred and long ones never, so no job waits behind a long
one that happens to be in the same process.
"""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from tests.app import mixed_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, wait_until_final

pytestmark = pytest.mark.slow

MODULES = {"TASK_MODULES": ["tasks", "mixed_tasks"]}

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


def looks_until(is_over):
    """Return what the query counted at each look, until the condition is true."""
    seen = []

    def look():
        seen.append(number(LEASED))
        return is_over()

    wait_for(look, DRAIN_SECONDS)
    return seen


@pytest.mark.parametrize(
    "processes, threads, short, long",
    [
        (2, 1, mixed_tasks.mixed, mixed_tasks.mixed),
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


def test_long_jobs_are_never_claimed_ahead(start_worker, the_ledger):
    """At every look, no more are leased than run."""
    start_worker(threads=2, pgqueue=MODULES)

    ids = enqueue(mixed_tasks.mixed, 8, seconds=0.2)
    seen = looks_until(lambda: not number(LEFT))

    assert max(seen) <= 2
    assert 8 == len(started(the_ledger, ids))
