"""NOTIFY is a hint: jobs start soon with it, and within the poll without it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.db import connection

from django_pgqueue.models import ArchivedJob, Job
from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, wait_until_dry, wait_until_final

pytestmark = pytest.mark.smoke

INSERT = "INSERT INTO pgqueue_job (task, queue) VALUES (%s, %s) RETURNING id"
NOTIFY_MANY = """
SELECT pg_notify(pgqueue_channel(), 'stranger.' || n)
  FROM generate_series(%s::int, %s::int) n
"""
RECORD = "tests.app.crash_tasks.record"

POLL = {"POLL_INTERVAL_SECONDS": 0.5}


def insert(cursor, queue="default"):
    """Enqueue as psql would: without a wake."""
    cursor.execute(INSERT, [RECORD, queue])
    return cursor.fetchone()[0]


def database_time(cursor):
    cursor.execute("SELECT clock_timestamp()")
    return cursor.fetchone()[0]


def claims(the_ledger):
    return len(the_ledger.entries("claim"))


def test_a_wake_starts_a_job_long_before_the_poll(start_worker, the_ledger):
    """The poll is ten minutes away."""
    start_worker("--queues=default")
    wait_until_dry(the_ledger)

    wait_until_final(enqueue(crash_tasks.record))


def test_a_job_whose_wake_was_lost_starts_within_the_poll(
    start_worker, the_ledger, cursor
):
    """A plain INSERT notifies nobody."""
    start_worker("--queues=default", pgqueue=POLL)

    wait_until_final([insert(cursor)])


def test_a_locked_row_is_found_once_its_transaction_rolled_back(
    start_worker, the_ledger, cursor, other_cursor
):
    """The worker looked while somebody held the row; nobody tells it of the end."""
    start_worker("--queues=default", pgqueue=POLL)

    with other_cursor.connection.transaction(force_rollback=True):
        # Due only once it is locked, or the worker might be faster than this test.
        cursor.execute(
            "INSERT INTO pgqueue_job (task, run_after)"
            " VALUES (%s, clock_timestamp() + interval '1s') RETURNING id",
            [RECORD],
        )
        (job,) = cursor.fetchone()
        other_cursor.execute(
            "SELECT visible_at FROM pgqueue_job WHERE id = %s FOR UPDATE", [job]
        )
        (due_at,) = other_cursor.fetchone()
        wait_for(lambda: database_time(cursor) > due_at, what="it is due")
        locked_at = claims(the_ledger)
        cursor.execute("SELECT pg_notify(pgqueue_channel(), 'default')")
        wait_for(lambda: claims(the_ledger) > locked_at + 4, what="it looked in vain")
        assert 0 == the_ledger.starts()[job]
    wait_until_final([job], 5)

    assert 1 == the_ledger.starts()[job]


def test_a_flood_of_foreign_notifications_costs_little(
    start_worker, the_ledger, cursor
):
    """
    60 000 NOTIFYs, each with a name of its own, to a worker of all queues: its memory
    does not grow, it claims a few times a second, and a real job starts all the same.
    """
    worker = start_worker()
    wait_until_final(enqueue(crash_tasks.record, 50))  # Everything is loaded.
    (child,) = worker.children()
    memory_before = resident_mib(child)
    claims_before = claims(the_ledger)
    cursor.execute("SELECT clock_timestamp()")
    (flood_began,) = cursor.fetchone()

    for first in range(0, 60_000, 1_000):
        cursor.execute(NOTIFY_MANY, [first, first + 999])
        if first == 30_000:
            (job,) = enqueue(crash_tasks.record)
    wait_until_final([job])
    (last,) = enqueue(crash_tasks.record)  # Behind all of the notifications.
    wait_until_final([last])

    flood_ended = ArchivedJob.objects.get(pk=last).finished_at
    seconds = (flood_ended - flood_began).total_seconds()
    assert claims(the_ledger) - claims_before < 60 + 30 * seconds
    assert resident_mib(child) - memory_before < 16
    assert not Job.objects.exists()


def test_every_connection_of_a_worker_is_replaced_when_it_is_terminated(
    start_worker, the_ledger, gate
):
    """All backends of a worker end in the middle of jobs: nothing is lost or stale."""
    worker = start_worker()
    ids = enqueue(crash_tasks.record_through_gate, 4, gate=str(gate))
    wait_for(lambda: len(the_ledger.entries("start")) == 4, what="they run")

    terminate("pgqueue %")
    gate.touch()
    wait_until_final(ids)
    terminate("pgqueue %")
    more = enqueue(crash_tasks.record, 50)
    wait_until_final(more)

    assert dict.fromkeys([*ids, *more], 1) == the_ledger.starts()
    assert [] == the_ledger.entries("stale")
    assert 0 == worker.stop()


def resident_mib(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(match[1]) / 1024


def terminate(names):
    """End the backends of these application names; return the last one's pid."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT max(pid), bool_and(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE %s",
            [names],
        )
        pid, _ = cursor.fetchone()
    assert pid is not None, f"nobody is called {names}"
    return pid
