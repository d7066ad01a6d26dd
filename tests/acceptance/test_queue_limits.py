"""Limits of queues, kept by real workers together."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

import pytest
from django.db import connection

from django_pgqueue.models import ArchivedJob, Job, Queue
from django_pgqueue.tasks import operate
from tests.acceptance.test_rates import excess
from tests.app import lane_tasks as tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import wait_until_final

# Each change of a lease in the queue, and how many there are after it: outside of the
# package. A lease ends when its row goes or is put back; one that ran out is its job's
# until that is claimed anew.
WATCH = """
CREATE TABLE leases (
    seq bigint GENERATED ALWAYS AS IDENTITY, job bigint, is_leased boolean,
    at double precision
);
CREATE FUNCTION note_lease() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO leases (job, is_leased, at)
    VALUES (coalesce(NEW.id, OLD.id), coalesce(NEW.leased_by IS NOT NULL, false),
            CASE WHEN NEW.deliveries > OLD.deliveries
                 THEN extract(epoch FROM NEW.leased_at) END);
    RETURN NULL;
END $$;
CREATE TRIGGER note_lease AFTER UPDATE OR DELETE ON pgqueue_job FOR EACH ROW
    EXECUTE FUNCTION note_lease();
"""
UNWATCH = "DROP TABLE leases; DROP FUNCTION note_lease() CASCADE"


class Leases:
    """What the trigger has seen."""

    def rows(self):
        with connection.cursor() as cursor:
            cursor.execute("SELECT job, is_leased, at FROM leases ORDER BY seq")
            return cursor.fetchall()

    def most(self):
        """Return how many were leased at a time, at most."""
        held, most = set(), 0
        for job, is_leased, _ in self.rows():
            (held.add if is_leased else held.discard)(job)
            most = max(most, len(held))
        return most

    def claims(self):
        """Return when jobs were claimed, in order."""
        return sorted(at for _, is_leased, at in self.rows() if is_leased and at)


@pytest.fixture
def leases(transactional_db):
    """Note what becomes of each lease."""
    with connection.cursor() as cursor:
        cursor.execute(WATCH)
    yield Leases()
    with connection.cursor() as cursor:
        cursor.execute(UNWATCH)


def limited(**said):
    return {"QUEUES": {"provider": said}, "LEASE_SECONDS": 3}


def store(task, count, tenants=1):
    items = [{"tenant": f"t{n % tenants}", "number": n} for n in range(count)]
    return [job.id for job in task.bulk(items)]


def test_no_more_are_leased_at_a_time_than_may_be(start_worker, the_ledger, leases):
    """By two workers of two processes, of which some are killed in the midst."""
    for _ in range(2):
        start_worker(processes=2, threads=3, pgqueue=limited(concurrency=3))
    ids = store(tasks.call_provider, 300)
    for many in (30, 120):
        wait_for(lambda many=many: many <= len(the_ledger.entries("end")))
        os.kill(the_ledger.entries("start")[-1].pid, signal.SIGKILL)

    wait_until_final(ids, timeout=60)

    assert leases.most() <= 3
    assert not Job.objects.exists()


def test_no_window_has_more_claims_than_rate_and_burst(
    start_worker, the_ledger, leases
):
    """Retries count, two workers share, and a killed process exceeds nothing."""
    for _ in range(2):
        start_worker(processes=2, pgqueue=limited(rate="60/s", burst=4))
    ids = store(tasks.call_provider, 150)
    for many in (20, 60):
        wait_for(lambda many=many: many <= len(the_ledger.entries("end")))
        os.kill(the_ledger.entries("start")[-1].pid, signal.SIGKILL)

    wait_until_final(ids, timeout=60)

    assert 150 <= len(leases.claims())
    assert excess(leases.claims(), 60, 4) <= 0


def test_a_pause_of_a_queue_ends_by_itself(start_worker, the_ledger):
    """Its jobs start then, and nobody has woken the worker; the poll is far away."""
    Queue.objects.create(name="provider")
    operate.pause("provider", until=timedelta(seconds=1.5))
    start_worker(pgqueue={"POLL_INTERVAL_SECONDS": 600})
    ids = store(tasks.call_for_tenant, 3)

    wait_until_final(ids)

    until = Queue.objects.get(name="provider").paused_until
    assert until is not None
    assert until <= min(ArchivedJob.objects.values_list("started_at", flat=True))
