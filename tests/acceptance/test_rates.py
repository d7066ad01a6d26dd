"""Rates: no more starts in any time than said, by real workers."""

from __future__ import annotations

import os
import signal
from collections import defaultdict

import pytest
from django.db import connection

from django_pgqueue.models import Job
from tests.app import lane_tasks as tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import wait_until_final

# Each claim that was committed, by the database's clock: outside of the package.
WATCH = """
CREATE TABLE claims (lane text, at double precision);
CREATE FUNCTION note_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO claims VALUES (NEW.lane, extract(epoch FROM NEW.leased_at));
    RETURN NULL;
END $$;
CREATE TRIGGER note_claim AFTER UPDATE ON pgqueue_job FOR EACH ROW
    WHEN (NEW.deliveries > OLD.deliveries AND NEW.leased_by IS NOT NULL)
    EXECUTE FUNCTION note_claim();
"""
UNWATCH = "DROP TABLE claims; DROP FUNCTION note_claim() CASCADE"

# Two clocks of one server are compared: when a job was let through, and when claimed.
CLOCK_SECONDS = 0.001


@pytest.fixture
def claims(transactional_db):
    """Return when jobs of each lane were claimed, in order."""
    with connection.cursor() as cursor:
        cursor.execute(WATCH)

    def read():
        found = defaultdict(list)
        with connection.cursor() as cursor:
            cursor.execute("SELECT lane, at FROM claims ORDER BY at")
            for lane, at in cursor.fetchall():
                found[lane].append(at)
        return found

    yield read
    with connection.cursor() as cursor:
        cursor.execute(UNWATCH)


def excess(times, rate, burst):
    """Return by how many claims the worst window of all exceeds rate and burst."""
    # Between two claims at times i and j there are j - i + 1, and the rate allows
    # burst + rate * (t_j - t_i): so much more than at its lowest must none be.
    worst = lowest = float("-inf")
    for place, at in enumerate(times):
        lowest = max(lowest, rate * at - place)
        worst = max(worst, place + 1 - rate * (at + CLOCK_SECONDS) + lowest - burst)
    return worst


def test_no_window_has_more_starts_than_rate_and_burst(
    start_worker, the_ledger, claims
):
    """Retries count, two workers share, and a killed process exceeds nothing."""
    start_worker(processes=2)
    start_worker()
    items = [{"account": f"a{n % 3}", "number": n} for n in range(120)]
    ids = [job.id for job in tasks.paced.bulk(items)]
    for many in (20, 60):
        wait_for(lambda many=many: many <= len(the_ledger.entries("end")))
        os.kill(the_ledger.entries("start")[-1].pid, signal.SIGKILL)

    wait_until_final(ids, timeout=60)
    found = claims()
    assert 3 == len(found)
    for times in found.values():
        assert len(times) >= 40
        assert excess(times, 40, 4) <= 0
    assert not Job.objects.exists()
